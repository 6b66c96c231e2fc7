#include "server/transport/web_client.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <utility>

#include "base/byte_count.h"
#include "base/error.h"
#include "base/log.h"
#include "server/transport/client_connection.h"
#include "server/transport/host_lookups.h"

// g++ 12 destroys temporaries with non-trivial destructors twice if they live across a co_await (PR
// 99576 and others). So every operand below is a named variable or a trivial value.

namespace tokamak {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

// Counts bytes in a total while it lives, on any thread.
class CountedBytes {
 public:
  explicit CountedBytes(std::shared_ptr<std::atomic<size_t>> total) : total_(std::move(total)) {}
  ~CountedBytes() { *total_ -= own_; }
  CountedBytes(const CountedBytes&) = delete;
  CountedBytes& operator=(const CountedBytes&) = delete;
  // Returns the new total.
  size_t Add(size_t bytes) {
    own_ += bytes;
    return *total_ += bytes;
  }

 private:
  const std::shared_ptr<std::atomic<size_t>> total_;
  size_t own_ = 0;
};

constexpr char kBusy[] = "too many images are being fetched; try again later";

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Takes one response. Reads the body only of a file.
class FileReceiver final : public HttpReceiver {
 public:
  FileReceiver(const WebClient::Options& options, std::shared_ptr<std::atomic<size_t>> total)
      : options_(options), counted_(std::make_shared<CountedBytes>(std::move(total))) {}

  Status OnHead(const ReceivedHead& head) override {
    status_ = head.status;
    location_ = head.location;
    if (status_ != 200) return Status(StatusCode::kCancelled, "there is no file");
    refusal_ = CheckSize(head.body_bytes.value_or(0));
    return refusal_;
  }
  Status OnBody(std::string_view bytes) override {
    refusal_ = CheckSize(bytes_.size() + bytes.size());
    if (!refusal_.ok()) return refusal_;
    if (counted_->Add(bytes.size()) > options_.max_bytes_together) {
      refusal_ = Unavailable(kBusy);
    } else {
      bytes_ += bytes;
    }
    return refusal_;
  }
  void OnEnd(const Status&) override {}

  int status() const { return status_; }              // 0: no response
  const Status& refusal() const { return refusal_; }  // of a file that exceeds a limit
  bool redirects() const { return IsRedirect(status_) && !location_.empty(); }
  const std::string& location() const { return location_; }
  WebClient::File TakeFile() { return {std::move(bytes_), std::move(counted_)}; }

 private:
  Status CheckSize(uint64_t bytes) const {
    if (bytes <= options_.max_bytes) return Status();
    return ResourceExhausted("the file is longer than the limit of {}",
                             ByteCount(static_cast<int64_t>(options_.max_bytes)));
  }

  const WebClient::Options& options_;
  int status_ = 0;
  Status refusal_;
  std::string location_;
  std::string bytes_;
  std::shared_ptr<CountedBytes> counted_;
};

}  // namespace

struct WebClient::Fetch::State {
  std::string url;
  OnFile on_file;
  Result<File> file = Status(StatusCode::kCancelled, "");
  bool cancelled = false;
  // The coroutine waits for these; null: not now.
  asio::steady_timer* lookup = nullptr;
  ClientConnection* connection = nullptr;
};

WebClient::Fetch::~Fetch() {
  state_->cancelled = true;
  state_->on_file = nullptr;
  if (state_->lookup != nullptr) state_->lookup->cancel();
  if (state_->connection != nullptr) state_->connection->Close();
}

struct WebClient::Impl {
  using State = Fetch::State;
  using Endpoints = std::vector<ClientConnection::Endpoint>;

  Impl(asio::io_context& context, Options o, ClientTls t)
      : io(context),
        options(std::move(o)),
        tls(std::move(t)),
        lookups(io, options.resolve, options.max_lookups),
        bytes_together(std::make_shared<std::atomic<size_t>>(0)) {}

  Result<Url> CheckedUrl(std::string_view text) const;
  Result<Url> Redirect(const Url& from, const std::string& location) const;
  asio::awaitable<Result<File>> Follow(State& state);
  asio::awaitable<Status> Ask(State& state, const Url& url, const Endpoints& endpoints,
                              HttpReceiver& receiver, ClientDeadline deadline);
  asio::awaitable<Result<Endpoints>> Find(State& state, const Url& url, ClientDeadline deadline);
  Endpoints Permitted(const Url& url, const HostLookups::Addresses& addresses) const;

  asio::io_context& io;
  const Options options;
  const ClientTls tls;
  HostLookups lookups;
  const std::shared_ptr<std::atomic<size_t>> bytes_together;
  size_t num_fetches = 0;
};

Result<Url> WebClient::Impl::CheckedUrl(std::string_view text) const {
  ASSIGN_OR_RETURN(Url url, ParseUrl(text));
  RETURN_IF_ERROR(options.hosts.Check(url));
  return url;
}

Result<Url> WebClient::Impl::Redirect(const Url& from, const std::string& location) const {
  Result<Url> to = ResolveRedirect(from, location);
  Status status = to.status();
  if (status.ok()) status = options.hosts.Check(*to);
  if (status.ok() && from.tls && !to->tls) {
    status = InvalidArgument("leads from https to http");
  }
  if (!status.ok()) return status.WithContext("a redirect of " + from.authority());
  return to;
}

asio::awaitable<Result<WebClient::File>> WebClient::Impl::Follow(State& state) {
  const auto limit = ToMicroseconds(options.timeout_seconds);
  const ClientDeadline deadline{.patience = limit, .whole = ClientDeadline::Clock::now() + limit};
  Result<Url> url = CheckedUrl(state.url);
  for (int redirects = 0; url.ok(); ++redirects) {
    FileReceiver receiver(options, bytes_together);
    const Result<Endpoints> endpoints = co_await Find(state, *url, deadline);
    if (endpoints.status().code() == StatusCode::kUnavailable) co_return endpoints.status();
    Status status = endpoints.status();
    if (status.ok()) status = co_await Ask(state, *url, *endpoints, receiver, deadline);
    if (status.ok()) co_return receiver.TakeFile();
    if (!receiver.refusal().ok()) co_return receiver.refusal();
    if (receiver.status() == 0 || receiver.status() == 200) {
      co_return InvalidArgument("cannot be fetched from {}: {}", url->authority(),
                                status.message());
    }
    if (!receiver.redirects()) {
      co_return InvalidArgument("{} answers with HTTP status {}", url->authority(),
                                receiver.status());
    }
    if (redirects == options.max_redirects) {
      co_return InvalidArgument("is redirected more than {} times", options.max_redirects);
    }
    url = Redirect(*url, receiver.location());
  }
  co_return url.status();
}

asio::awaitable<Result<WebClient::Impl::Endpoints>> WebClient::Impl::Find(State& state,
                                                                          const Url& url,
                                                                          ClientDeadline deadline) {
  const Status unwanted(StatusCode::kCancelled, "nobody waits for it");
  if (state.cancelled) co_return unwanted;
  Result<HostLookups::Addresses> addresses = HostLookups::Addresses{url.host};
  error_code error;
  asio::ip::make_address(url.host, error);
  if (error) {  // a name
    asio::steady_timer patience(io, deadline.next());
    // Also when the coroutine is destroyed.
    struct Registered {
      State& state;
      ~Registered() { state.lookup = nullptr; }
    } const registered{state};
    state.lookup = &patience;
    addresses = co_await lookups.Find(url.host, patience);
  }
  if (state.cancelled) co_return unwanted;
  if (!addresses.ok()) co_return addresses.status();
  Endpoints endpoints = Permitted(url, *addresses);
  // One message, so that nobody learns which names exist in the server's network.
  if (endpoints.empty()) {
    co_return NotFound(
        "the host has no public address (--allow-private-image-hosts permits others)");
  }
  co_return endpoints;
}

asio::awaitable<Status> WebClient::Impl::Ask(State& state, const Url& url,
                                             const Endpoints& endpoints, HttpReceiver& receiver,
                                             ClientDeadline deadline) {
  ClientConnection::Request request(http::verb::get, url.target, 11);
  request.set(http::field::host, url.authority());
  request.set(http::field::user_agent, "tokamak");
  request.set(http::field::accept, "image/*");
  request.set(http::field::accept_encoding, "identity");
  request.set(http::field::connection, "close");
  ClientConnection connection(io, url.tls ? &tls : nullptr);
  // Also when the coroutine is destroyed.
  struct Registered {
    State& state;
    ~Registered() { state.connection = nullptr; }
  } const registered{state};
  state.connection = &connection;
  Status status = co_await connection.Open(endpoints, url.host, deadline);
  if (status.ok()) status = co_await connection.Exchange(request, receiver, deadline);
  co_return status;
}

WebClient::Impl::Endpoints WebClient::Impl::Permitted(
    const Url& url, const HostLookups::Addresses& addresses) const {
  Endpoints endpoints;
  for (const std::string& text : addresses) {
    error_code error;
    const asio::ip::address address = asio::ip::make_address(text, error);
    if (error || !options.hosts.Permits(url, text)) continue;
    endpoints.emplace_back(address, static_cast<uint16_t>(std::stoi(url.port)));
  }
  return endpoints;
}

WebClient::WebClient(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
WebClient::~WebClient() { Stop(); }

Result<std::unique_ptr<WebClient>> WebClient::Create(asio::io_context& io, Options options) {
  ASSIGN_OR_RETURN(ClientTls tls, MakeClientTls(options.ca_file, /*insecure=*/false));
  auto impl = std::make_shared<Impl>(io, std::move(options), std::move(tls));
  return std::unique_ptr<WebClient>(new WebClient(std::move(impl)));
}

void WebClient::Stop() { impl_->lookups.Stop(); }

Status WebClient::Check(std::string_view url) const { return impl_->CheckedUrl(url).status(); }

std::unique_ptr<WebClient::Fetch> WebClient::Get(std::string url, OnFile on_file) {
  auto state = std::make_shared<Fetch::State>();
  state->url = std::move(url);
  state->on_file = std::move(on_file);
  auto run = [impl = impl_, state]() -> asio::awaitable<void> {
    if (impl->num_fetches > impl->options.max_fetches) {
      state->file = Unavailable(kBusy);
    } else {
      state->file = co_await impl->Follow(*state);
    }
  };
  auto done = [impl = impl_, state](const std::exception_ptr& error) {
    --impl->num_fetches;
    if (error != nullptr) {  // a bug, or memory has run out
      LogError("an image was not fetched because of an exception");
      state->file = Internal("cannot be fetched");
    }
    if (state->on_file) state->on_file(std::move(state->file));
  };
  ++impl_->num_fetches;
  asio::co_spawn(impl_->io, std::move(run), std::move(done));
  return std::unique_ptr<Fetch>(new Fetch(std::move(state)));
}

}  // namespace tokamak
