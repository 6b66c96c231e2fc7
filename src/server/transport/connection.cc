#include "server/transport/connection.h"

#include <fmt/core.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "base/check.h"

namespace tokamak {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kSmallRead = 4096;     // buffer of an idle connection
constexpr double kFarewellSeconds = 2;  // for the client to read an error

// Counts the bytes of a body in the host's total while it lives.
class Arriving {
 public:
  explicit Arriving(size_t& total) : total_(total) {}
  ~Arriving() { total_ -= own_; }
  Arriving(const Arriving&) = delete;
  Arriving& operator=(const Arriving&) = delete;
  void Add(size_t bytes) {
    own_ += bytes;
    total_ += bytes;
  }

 private:
  size_t& total_;
  size_t own_ = 0;
};

}  // namespace

Connection::Connection(ConnectionHost& host, std::unique_ptr<ByteStream> stream, std::string client)
    : host_(host),
      limits_(host.options.limits),
      stream_(std::move(stream)),
      client_(std::move(client)),
      arrived_(*host.io),
      room_(*host.io),
      deadline_(*host.io),
      to_send_(*host.io, Clock::time_point::max()),
      sent_(*host.io, Clock::time_point::max()) {
  room_.expires_at(Clock::time_point::max());
}

void Connection::CloseIfIdle() {
  if (writer_ == nullptr && !reading_) Close();
}

void Connection::Close() {
  error_code ignored;
  stream_->socket().close(ignored);
  ended_ = true;
  StopDeadline();
  arrived_.cancel();
  room_.cancel();
  to_send_.cancel();
  if (turn_ != nullptr) turn_->cancel();
  if (writer_ != nullptr) writer_->Gone();
}

void Connection::StartDeadline(double seconds) {
  deadline_.expires_after(Milliseconds(seconds));
  deadline_.async_wait([weak = weak_from_this(), number = ++deadlines_](error_code) {
    const auto self = weak.lock();
    if (self != nullptr && self->deadlines_ == number) self->Close();
  });
}

void Connection::StopDeadline() {
  ++deadlines_;
  deadline_.cancel();
}

asio::awaitable<bool> Connection::Open() {
  error_code error;
  StartDeadline(limits_.header_seconds);
  co_await stream_->Handshake(error);
  StopDeadline();
  if (error || ended_) co_return false;
  const auto end = [self = shared_from_this()](const std::exception_ptr& error) {
    if (error != nullptr) self->Close();
  };
  asio::co_spawn(*host_.io, Pump(), end);
  asio::co_spawn(*host_.io, Send(), end);
  co_return true;
}

asio::awaitable<void> Connection::Serve() {
  const bool open = co_await Open();
  while (open) {
    RequestReader reader(limits_.max_header_bytes, limits_.max_body_bytes);
    const Next next = co_await ReadRequest(reader);
    reading_ = false;
    if (next == Next::kEnd) break;
    if (next == Next::kRequest) {
      StartResponse(reader, reader.keep_alive());
      co_await Handle();
    }
    const bool sent = co_await SendRest();
    const bool go_on = sent && writer_->keep_alive() && !host_.draining;
    const bool unread = next == Next::kAnswered && reader.has_body();
    writer_ = nullptr;
    if (go_on) {
      if (!incoming_.empty()) co_await WaitForTurn();
      continue;
    }
    if (sent && unread) {
      co_await Linger();
    } else if (sent) {
      StartDeadline(kFarewellSeconds);
      co_await stream_->FinishWriting();
      StopDeadline();
    }
    break;
  }
  Close();
}

asio::awaitable<void> Connection::Refuse(int status, const std::string& message) {
  const bool open = co_await Open();
  const HttpRequest unknown;
  if (open) co_await Fail(unknown, status, message);
  Close();
}

// Reads until the client closes.
asio::awaitable<void> Connection::Pump() {
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  std::string space(kSmallRead, '\0');
  bool full = false;  // the last read filled its buffer, so a larger one is worth its memory
  while (!ended_) {
    if (incoming_.size() >= kReadAhead) {
      co_await room_.async_wait(token);
      continue;
    }
    if (const size_t wanted = full ? kReadAhead : kSmallRead; wanted != space.size()) {
      space = std::string(wanted, '\0');
    }
    const auto buffer = asio::buffer(space);
    const size_t got = co_await stream_->ReadSome(buffer, error);
    if (error) break;
    full = got == space.size();
    if (discarding_) continue;
    incoming_.append(space, 0, got);
    arrived_.cancel();
  }
  ended_ = true;
  arrived_.cancel();
  to_send_.cancel();
  if (writer_ != nullptr && !writer_->finished()) writer_->Gone();
}

// Returns false if the client has closed or the deadline has passed.
asio::awaitable<bool> Connection::WaitForMore(size_t than, Clock::time_point deadline) {
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  while (incoming_.size() <= than) {
    if (ended_ || Clock::now() >= deadline) co_return false;
    arrived_.expires_at(deadline);
    co_await arrived_.async_wait(token);
  }
  co_return true;
}

void Connection::Feed(RequestReader& reader) {
  incoming_.erase(0, reader.Feed(incoming_));
  room_.cancel();
}

// kAnswered: the response was made without reading the body.
asio::awaitable<Connection::Next> Connection::ReadRequest(RequestReader& reader) {
  const bool head = co_await ReadHead(reader);
  if (!head) co_return Next::kEnd;
  reader.request().client = client_;
  if (host_.options.check_head) {
    std::optional<HttpResponse> refusal = host_.options.check_head(reader.request());
    if (refusal.has_value()) {
      StartResponse(reader, reader.keep_alive() && !reader.has_body());
      writer_->Respond(*std::move(refusal));
      co_return Next::kAnswered;
    }
  }
  if (reader.done()) co_return Next::kRequest;
  if (!reader.refused()) {
    const bool body = co_await ReadBody(reader);
    if (body) co_return Next::kRequest;
    if (!reader.refused()) co_return Next::kEnd;
  }
  co_await Fail(reader.request(), reader.status(), reader.message());
  co_return Next::kEnd;
}

asio::awaitable<bool> Connection::ReadHead(RequestReader& reader) {
  if (incoming_.empty()) {  // wait for the first byte without counting it as slow
    const Clock::time_point idle = Clock::now() + Milliseconds(limits_.idle_seconds);
    const bool begun = co_await WaitForMore(0, idle);
    if (!begun) co_return false;
  }
  reading_ = true;
  const Clock::time_point deadline = Clock::now() + Milliseconds(limits_.header_seconds);
  while (true) {
    Feed(reader);
    if (reader.head_done()) co_return true;
    if (reader.refused()) break;
    const bool more = co_await WaitForMore(incoming_.size(), deadline);
    if (more) continue;
    if (!ended_) {
      const std::string message =
          fmt::format("the headers did not arrive within {} s", limits_.header_seconds);
      co_await Fail(reader.request(), 408, message);
    }
    co_return false;
  }
  co_await Fail(reader.request(), reader.status(), reader.message());
  co_return false;
}

// Returns false without a whole body. The client has been told why, unless the reader refused it.
asio::awaitable<bool> Connection::ReadBody(RequestReader& reader) {
  Arriving arriving(host_.arriving_bytes);
  const Clock::time_point deadline = Clock::now() + Milliseconds(limits_.body_seconds);
  if (reader.expects_continue() && incoming_.empty()) {
    const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    const bool written = co_await WriteAll(go_on);
    if (!written) co_return false;
  }
  while (true) {
    const size_t before = incoming_.size();
    Feed(reader);
    arriving.Add(before - incoming_.size());
    if (reader.done() || reader.refused()) co_return reader.done();
    if (host_.arriving_bytes > limits_.max_arriving_bytes) {
      const std::string message = "too many large requests are arriving; try again later";
      co_await Fail(reader.request(), 503, message);
      co_return false;
    }
    const bool more = co_await WaitForMore(incoming_.size(), deadline);
    if (more) continue;
    if (!ended_) {
      const std::string message =
          fmt::format("the body did not arrive within {} s", limits_.body_seconds);
      co_await Fail(reader.request(), 408, message);
    }
    co_return false;
  }
}

void Connection::StartResponse(RequestReader& reader, bool keep_alive) {
  ResponseWriter::Options options;
  options.keep_alive = keep_alive && !host_.draining;
  options.chunks_allowed = reader.http11();
  options.max_unsent = limits_.max_unsent_bytes;
  options.max_together = limits_.max_unsent_together_bytes;
  options.together = &host_.unsent_bytes;
  options.drop = [this] { Close(); };
  options.to_send = [this] { to_send_.cancel(); };
  options.decorate = host_.options.decorate;
  writer_ =
      std::make_unique<ResponseWriter>(*host_.io, std::move(reader.request()), std::move(options));
}

asio::awaitable<void> Connection::Handle() {
  // A client that half-closes after its request gets what can be answered at once.
  if (ended_) {
    asio::post(*host_.io, [self = shared_from_this()] {
      if (self->writer_ != nullptr && !self->writer_->finished()) self->writer_->Gone();
    });
  }
  co_await host_.handler(*writer_);
  CHECK(writer_->finished() || writer_->gone());
}

asio::awaitable<void> Connection::Send() {
  error_code ignored;
  auto token = asio::redirect_error(asio::use_awaitable, ignored);
  while (!ended_) {
    if (writer_ != nullptr && !sending_ && writer_->has_unsent()) {
      co_await SendUnsent();
    } else {
      co_await to_send_.async_wait(token);
    }
  }
}

asio::awaitable<void> Connection::SendUnsent() {
  sending_ = true;
  const std::string data = writer_->TakeUnsent();
  const bool written = co_await WriteAll(data);
  sending_ = false;
  if (written) {
    writer_->Sent();
  } else {
    writer_->Gone();
  }
  sent_.cancel();
}

// Sends the handler's remaining output. Returns false if the connection cannot be used any more.
asio::awaitable<bool> Connection::SendRest() {
  error_code ignored;
  auto token = asio::redirect_error(asio::use_awaitable, ignored);
  while (sending_ || writer_->has_unsent()) {
    if (sending_) {
      co_await sent_.async_wait(token);
    } else {
      co_await SendUnsent();
    }
  }
  if (writer_->gone()) co_return false;
  writer_->Complete();
  co_return true;
}

// Waits, because the client sent a request before it had the last response.
asio::awaitable<void> Connection::WaitForTurn() {
  error_code ignored;
  auto token = asio::redirect_error(asio::use_awaitable, ignored);
  turn_ = std::make_shared<Turns::Timer>(*host_.io, Clock::time_point::max());
  host_.turns.Join(turn_);
  co_await turn_->async_wait(token);
  turn_ = nullptr;
}

// The deadline is for each piece, so slow clients can read long responses.
asio::awaitable<bool> Connection::WriteAll(const std::string& data) {
  error_code error;
  for (size_t done = 0; done < data.size() && !error;) {
    const auto rest = asio::buffer(data.data() + done, data.size() - done);
    StartDeadline(limits_.write_seconds);
    const size_t put = co_await stream_->WriteSome(rest, error);
    done += put;
  }
  StopDeadline();
  co_return !error;
}

asio::awaitable<void> Connection::Fail(const HttpRequest& request, int status,
                                       const std::string& message) {
  HttpResponse response = host_.options.error_response(request, status, message);
  if (host_.options.decorate) host_.options.decorate(request, response);
  const std::string data = FormatHead(response, false, false) + response.body;
  const bool written = co_await WriteAll(data);
  if (written) co_await Linger();
}

// Lets the client read the response before a reset: for a moment, reads and drops what it is still
// sending.
asio::awaitable<void> Connection::Linger() {
  discarding_ = true;
  incoming_ = std::string();
  room_.cancel();
  StartDeadline(kFarewellSeconds);
  const Clock::time_point end = Clock::now() + Milliseconds(kFarewellSeconds);
  co_await stream_->FinishWriting();
  co_await WaitForMore(0, end);
  StopDeadline();
}

}  // namespace tokamak
