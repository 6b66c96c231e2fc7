// Streams over the asynchronous, generic API of gRPC, with one thread for each server and client.
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/byte_buffer.h>

// Abseil, which gRPC includes, has macros with the names of ours (base/mutex.h).
#undef GUARDED_BY
#undef NO_THREAD_SAFETY_ANALYSIS

#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "rpc/message_stream.h"

namespace tokamak {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr char kMethod[] = "/tokamak.Worker/Serve";
constexpr size_t kMaxStreams = 256;

grpc::ByteBuffer ToBuffer(const std::string& message) {
  const grpc::Slice slice(message);
  return grpc::ByteBuffer(&slice, 1);
}

std::string ToString(const grpc::ByteBuffer& buffer) {
  std::string message;
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return message;
  message.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    message.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return message;
}

// What goes wrong reaches the caller as a Status, so gRPC's own lines only help to debug.
void StartGrpc() {
  // Never undone: when its last user ends, gRPC ends threads of its own, and waits up to 10 s for
  // one that polls.
  grpc_init();
  gpr_set_log_function([](gpr_log_func_args* line) {
    Log(LogLevel::kDebug, "gRPC: {}", line->message == nullptr ? "" : line->message);
  });
}

// The time for a TLS handshake, and for an address to answer.
constexpr std::chrono::seconds kHandshake{5};

int Milliseconds(std::chrono::milliseconds time) { return static_cast<int>(time.count()); }

// Over a network, asks the other side every few seconds whether it is still there. Between the
// processes of a machine the system says so.
std::map<std::string, int> KeepAlive() {
  constexpr std::chrono::seconds kPeriod{5};
  constexpr std::chrono::seconds kPatience{10};
  return {{GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kPeriod)},
          {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kPatience)},
          {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
          {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},  // as many as it likes
          {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0}};
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const Endpoint& endpoint) {
  if (!endpoint.tls) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = endpoint.tls->authority;
  options.pem_key_cert_pairs.push_back({endpoint.tls->key, endpoint.tls->certificate});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(const Endpoint& endpoint) {
  if (!endpoint.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = endpoint.tls->authority;
  options.pem_private_key = endpoint.tls->key;
  options.pem_cert_chain = endpoint.tls->certificate;
  return grpc::SslCredentials(options);
}

// Neither side may send without TLS over a network, whatever its caller forgot.
Status CheckEndpoint(const Endpoint& endpoint) {
  if (endpoint.tls || endpoint.address.starts_with("unix:/")) return Status();
  return InvalidArgument("{}: needs TLS", endpoint.address);
}

// Something that gRPC does meanwhile; the address is its tag. Called on the thread of the queue.
using Operation = std::function<void(bool ok)>;

void RunOperations(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) (*static_cast<Operation*>(tag))(ok);
}

// One side of a call: reads one message at a time, and writes one at a time.
class Link {
 public:
  Link(int32_t stream, Inbox* inbox) : stream_(stream), inbox_(inbox) {}
  virtual ~Link() = default;

  // Begins to read, once the call has started.
  void Begin() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++pending_;
    StartRead(&in_, &read_);
  }
  void Send(const std::string& message) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (ended_) return;
    out_.push_back(ToBuffer(message));
    if (out_.size() > 1) return;
    ++pending_;
    StartWrite(out_.front(), &write_);
  }
  // Ends the stream unless it has ended.
  void End(const Status& reason) EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(ended_, true)) return;
      ++pending_;
      StartFinish(grpc::StatusCode::OK, nullptr, &finish_);
      changed_.NotifyAll();
    }
    inbox_->Push({stream_, reason});
  }
  // Ends a call that becomes no stream, after this message if there is one. Instead of Begin.
  void Refuse(grpc::StatusCode code, const std::optional<std::string>& message = {})
      EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ended_ = true;
    ++pending_;
    if (message) out_.push_back(ToBuffer(*message));
    StartFinish(code, message ? &out_.front() : nullptr, &finish_);
  }

  int32_t stream() const { return stream_; }

 protected:
  virtual void StartRead(grpc::ByteBuffer* in, Operation* done) = 0;
  virtual void StartWrite(const grpc::ByteBuffer& out, Operation* done) = 0;
  // `last`: a message to write before, or null. A client neither has one nor gives a code.
  virtual void StartFinish(grpc::StatusCode code, const grpc::ByteBuffer* last,
                           Operation* done) = 0;
  // Called when gRPC is done with an ended stream.
  virtual void OnGone() = 0;

  // Waits until all messages are written, then calls `then`, which starts finish_ or another
  // operation that makes the other side end the stream, and waits for that.
  template <typename Then>
  void Drain(SteadyClock::time_point deadline, Then then) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (!ended_ && !out_.empty() && WaitUntil(deadline)) continue;
    if (ended_ || !out_.empty()) return;
    ++pending_;
    then();
    while (!ended_ && WaitUntil(deadline)) continue;
  }
  void Done() EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (--pending_ > 0 || !ended_) return;
    }
    OnGone();
  }

 private:
  void OnRead(bool ok) EXCLUDES(mutex_) {
    if (!ok) {
      End(Unavailable("the connection has ended"));
    } else if (!inbox_->Push({stream_, ToString(in_)})) {
      End(ResourceExhausted("too many messages wait to be read"));
    }
    {
      const MutexLock lock(mutex_);
      in_.Clear();
      if (!ended_) return StartRead(&in_, &read_);
    }
    Done();
  }
  void OnWritten(bool ok) EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      out_.pop_front();
      changed_.NotifyAll();
      // If writing fails, so does reading, which ends the stream.
      if (ok && !ended_ && !out_.empty()) return StartWrite(out_.front(), &write_);
    }
    Done();
  }
  // False after the deadline.
  bool WaitUntil(SteadyClock::time_point deadline) REQUIRES(mutex_) {
    return changed_.WaitFor(mutex_, deadline - SteadyClock::now()) || SteadyClock::now() < deadline;
  }

  const int32_t stream_;
  Inbox* const inbox_;
  grpc::ByteBuffer in_;
  Operation read_ = [this](bool ok) { OnRead(ok); };
  Operation write_ = [this](bool ok) { OnWritten(ok); };
  Operation finish_ = [this](bool) { Done(); };

  Mutex mutex_;
  CondVar changed_;
  bool ended_ GUARDED_BY(mutex_) = false;
  int pending_ GUARDED_BY(mutex_) = 0;                   // operations
  std::deque<grpc::ByteBuffer> out_ GUARDED_BY(mutex_);  // the first one is being written
};

class GrpcServer;

class ServerLink final : public Link {
 public:
  ServerLink(GrpcServer* server, int32_t stream, Inbox* inbox)
      : Link(stream, inbox), server_(server) {}

  void Accept(grpc::AsyncGenericService& service, grpc::ServerCompletionQueue* queue) {
    service.RequestCall(&context_, &call_, queue, queue, &accepted_);
  }
  bool is_known() const { return context_.method() == kMethod; }

 private:
  void StartRead(grpc::ByteBuffer* in, Operation* done) override { call_.Read(in, done); }
  void StartWrite(const grpc::ByteBuffer& out, Operation* done) override { call_.Write(out, done); }
  void StartFinish(grpc::StatusCode code, const grpc::ByteBuffer* last, Operation* done) override {
    const grpc::Status status(code, "");
    if (last == nullptr) return call_.Finish(status, done);
    call_.WriteAndFinish(*last, grpc::WriteOptions(), status, done);
  }
  void OnGone() override;

  GrpcServer* const server_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter call_{&context_};
  Operation accepted_ = [this](bool ok) { OnAccepted(ok); };
  void OnAccepted(bool ok);
};

class GrpcServer final : public MessageServer {
 public:
  explicit GrpcServer(Inbox* inbox) : inbox_(inbox) {}
  ~GrpcServer() override {
    if (server_ != nullptr) {
      {
        const MutexLock lock(mutex_);
        for (const auto& [stream, link] : links_) link->End(Unavailable("the server ends"));
      }
      server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
      const MutexLock lock(mutex_);
      while (next_ != nullptr || !links_.empty()) gone_.Wait(mutex_);
    }
    if (queue_ != nullptr) queue_->Shutdown();
    if (thread_.joinable()) thread_.join();
  }

  Status Start(const Endpoint& endpoint) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(endpoint.address, ServerCredentials(endpoint), &port);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetMaxSendMessageSize(kMaxMessageBytes);
    // Otherwise two drivers could listen on one port.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(kHandshake));
    if (endpoint.tls) {
      for (const auto& [name, value] : KeepAlive()) builder.AddChannelArgument(name, value);
    }
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    thread_ = std::thread([this] { RunOperations(*queue_); });
    if (server_ == nullptr) return Unavailable("{}: cannot listen there", endpoint.address);
    Accept();
    return Status();
  }
  void Send(int32_t stream, std::string message) override {
    const MutexLock lock(mutex_);
    const auto found = links_.find(stream);
    if (found != links_.end()) found->second->Send(message);
  }

  void RefuseNew(std::string message) override {
    const MutexLock lock(mutex_);
    refusal_ = std::move(message);
  }

  // The next call has come, or none will.
  void OnAccepted(bool ok) EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (!ok) {
        last_gone_ = std::move(next_);
        return gone_.NotifyAll();
      }
      const int32_t stream = next_->stream();
      ServerLink& link = *next_;
      links_[stream] = std::move(next_);
      if (!link.is_known()) {
        link.Refuse(grpc::StatusCode::UNIMPLEMENTED);
      } else if (links_.size() > kMaxStreams) {
        link.Refuse(grpc::StatusCode::RESOURCE_EXHAUSTED);
      } else if (refusal_) {
        link.Refuse(grpc::StatusCode::OK, refusal_);
      } else {
        link.Begin();
      }
    }
    Accept();
  }
  void Remove(int32_t stream) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = links_.find(stream);
    last_gone_ = std::move(found->second);
    links_.erase(found);
    gone_.NotifyAll();
  }

 private:
  void Accept() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    next_ = std::make_unique<ServerLink>(this, num_streams_++, inbox_);
    next_->Accept(service_, queue_.get());
  }

  Inbox* const inbox_;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
  Mutex mutex_;
  CondVar gone_;
  int32_t num_streams_ GUARDED_BY(mutex_) = 0;
  std::optional<std::string> refusal_ GUARDED_BY(mutex_);
  std::unique_ptr<ServerLink> next_ GUARDED_BY(mutex_);  // waits for a call
  std::map<int32_t, std::unique_ptr<ServerLink>> links_ GUARDED_BY(mutex_);
  // Lives until the next one, because its operation calls Remove.
  std::unique_ptr<ServerLink> last_gone_ GUARDED_BY(mutex_);
};

void ServerLink::OnAccepted(bool ok) { server_->OnAccepted(ok); }
void ServerLink::OnGone() { server_->Remove(stream()); }

class ClientLink final : public Link {
 public:
  ClientLink(Inbox* inbox, const std::shared_ptr<grpc::Channel>& channel,
             grpc::CompletionQueue* queue)
      : Link(0, inbox), stub_(channel), call_(stub_.PrepareCall(&context_, kMethod, queue)) {
    call_->StartCall(&on_started_);
  }
  void FinishSending() {
    constexpr std::chrono::seconds kPatience{5};
    Drain(SteadyClock::now() + kPatience, [this] { call_->WritesDone(&writes_done_); });
  }
  // Ends the call and waits until gRPC is done with it.
  void Stop() EXCLUDES(gone_mutex_) {
    End(Unavailable("this side has ended the connection"));
    const MutexLock lock(gone_mutex_);
    while (!gone_) changed_.Wait(gone_mutex_);
  }
  // Whether it has started. If not, it has ended: error() says why.
  bool WaitForStart() EXCLUDES(gone_mutex_) {
    const MutexLock lock(gone_mutex_);
    while (!begun_ && !gone_) changed_.Wait(gone_mutex_);
    return begun_;
  }
  std::string error() const { return status_.error_message(); }

 private:
  void StartRead(grpc::ByteBuffer* in, Operation* done) override { call_->Read(in, done); }
  void StartWrite(const grpc::ByteBuffer& out, Operation* done) override {
    call_->Write(out, done);
  }
  void StartFinish(grpc::StatusCode, const grpc::ByteBuffer*, Operation* done) override {
    if (started_) context_.TryCancel();
    call_->Finish(&status_, done);
  }
  void OnStarted(bool ok) {
    if (!ok) return Refuse(grpc::StatusCode::OK);
    started_ = true;
    Begin();
    const MutexLock lock(gone_mutex_);
    begun_ = true;
    changed_.NotifyAll();
  }
  void OnGone() override {
    const MutexLock lock(gone_mutex_);
    gone_ = true;
    changed_.NotifyAll();
  }

  grpc::ClientContext context_;
  grpc::Status status_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  Operation on_started_ = [this](bool ok) { OnStarted(ok); };
  Operation writes_done_ = [this](bool) { Done(); };
  bool started_ = false;  // used on the queue's thread, or after WaitForStart
  Mutex gone_mutex_;
  CondVar changed_;
  bool begun_ GUARDED_BY(gone_mutex_) = false;
  bool gone_ GUARDED_BY(gone_mutex_) = false;
};

class GrpcClient final : public MessageClient {
 public:
  GrpcClient(const std::shared_ptr<grpc::Channel>& channel, Inbox* inbox)
      : thread_([this] { RunOperations(queue_); }), link_(inbox, channel, &queue_) {}
  ~GrpcClient() override {
    link_.Stop();
    queue_.Shutdown();
    thread_.join();
  }

  void Send(std::string message) override { link_.Send(message); }
  void Finish() override { link_.FinishSending(); }
  bool WaitForStart() { return link_.WaitForStart(); }
  std::string error() const { return link_.error(); }

 private:
  grpc::CompletionQueue queue_;
  std::thread thread_;
  ClientLink link_;
};

std::shared_ptr<grpc::Channel> MakeChannel(const Endpoint& endpoint) {
  constexpr std::chrono::milliseconds kFirstPause{100}, kLongestPause{1000};
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // whatever the environment says
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Milliseconds(kFirstPause));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Milliseconds(kLongestPause));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Milliseconds(kHandshake));
  if (endpoint.tls) {
    for (const auto& [name, value] : KeepAlive()) arguments.SetInt(name, value);
  }
  return grpc::CreateCustomChannel(endpoint.address, ChannelCredentials(endpoint), arguments);
}

}  // namespace

Result<std::unique_ptr<MessageServer>> MessageServer::Listen(const Endpoint& endpoint,
                                                             Inbox* inbox) {
  RETURN_IF_ERROR(CheckEndpoint(endpoint));
  StartGrpc();
  auto server = std::make_unique<GrpcServer>(inbox);
  RETURN_IF_ERROR(server->Start(endpoint));
  return std::unique_ptr<MessageServer>(std::move(server));
}

Result<std::unique_ptr<MessageClient>> MessageClient::Connect(const Endpoint& endpoint,
                                                              std::chrono::milliseconds timeout,
                                                              Inbox* inbox) {
  constexpr std::chrono::milliseconds kPause{50};
  constexpr int kMaxClosed = 3;  // one may be of a driver that was just ending
  RETURN_IF_ERROR(CheckEndpoint(endpoint));
  StartGrpc();
  const SteadyClock::time_point deadline = SteadyClock::now() + timeout;
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(endpoint);
  for (int num_closed = 0;;) {
    auto client = std::make_unique<GrpcClient>(channel, inbox);
    if (client->WaitForStart()) return std::unique_ptr<MessageClient>(std::move(client));
    // gRPC has words for these, but no codes. A driver that does not accept this side's certificate
    // says so only after the handshake, by closing the connection.
    const std::string error = client->error();
    const auto says = [&error](const char* text) { return error.find(text) != error.npos; };
    if (says("handshake failed") || says("peer certificate")) {
      return Unavailable("{}: the certificate of the driver there is not accepted: {}",
                         endpoint.address, error);
    }
    num_closed = endpoint.tls && says("Socket closed") ? num_closed + 1 : 0;
    if (num_closed == kMaxClosed) {
      return Unavailable(
          "{}: the driver there closes the connection; it accepts only certificates of its own "
          "authority: {}",
          endpoint.address, error);
    }
    if (SteadyClock::now() >= deadline) {
      return Unavailable("{}: no driver answers there: {}", endpoint.address, error);
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace tokamak
