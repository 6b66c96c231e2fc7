#include <grpc/support/log.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/byte_buffer.h>

// Abseil, which gRPC includes, has macros with the names of ours (base/mutex.h).
#undef GUARDED_BY
#undef NO_THREAD_SAFETY_ANALYSIS

#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "rpc/message_stream.h"

namespace tokamak {
namespace {

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
void LogThroughOurs() {
  gpr_set_log_function([](gpr_log_func_args* line) {
    Log(LogLevel::kDebug, "gRPC: {}", line->message == nullptr ? "" : line->message);
  });
}

// The messages of one stream that wait to be written, and its end. `Reactor` is gRPC's class for a
// side of a call: it reads one message at a time, writes one at a time, and calls back on threads
// of gRPC.
template <typename Reactor>
class Link : public Reactor {
 public:
  Link(int32_t stream, Inbox* inbox) : stream_(stream), inbox_(inbox) {}

  void Send(const std::string& message) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (ended_) return;
    out_.push_back(ToBuffer(message));
    if (out_.size() == 1) this->StartWrite(&out_.front());
  }
  void OnReadDone(bool ok) override {
    if (!ok) return End(Unavailable("the connection has ended"));
    if (!inbox_->Push({stream_, ToString(in_)})) {
      return End(ResourceExhausted("too many messages wait to be read"));
    }
    in_.Clear();
    Read();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return End(Unavailable("the connection has ended"));
    const MutexLock lock(mutex_);
    out_.pop_front();
    if (!ended_ && !out_.empty()) this->StartWrite(&out_.front());
    changed_.NotifyAll();
  }

 protected:
  // Waits until all messages are written, then calls `then`, which makes the other side end the
  // stream, and waits for that.
  template <typename Then>
  void Drain(std::chrono::steady_clock::time_point deadline, Then then) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (!ended_ && !out_.empty() && WaitUntil(deadline)) continue;
    if (ended_ || !out_.empty()) return;
    then();
    while (!ended_ && WaitUntil(deadline)) continue;
  }
  void Read() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!ended_) this->StartRead(&in_);
  }
  // Ends the stream unless it has ended.
  void End(const Status& reason) EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(ended_, true)) return;
      changed_.NotifyAll();
    }
    inbox_->Push({stream_, reason});
    Close();
  }
  // Called once. No read and no write is started afterwards.
  virtual void Close() = 0;

  const int32_t stream_;

 private:
  // False after the deadline.
  bool WaitUntil(std::chrono::steady_clock::time_point deadline) REQUIRES(mutex_) {
    return changed_.WaitFor(mutex_, deadline - std::chrono::steady_clock::now()) ||
           std::chrono::steady_clock::now() < deadline;
  }

  Inbox* const inbox_;
  grpc::ByteBuffer in_;
  Mutex mutex_;
  CondVar changed_;
  bool ended_ GUARDED_BY(mutex_) = false;
  std::deque<grpc::ByteBuffer> out_ GUARDED_BY(mutex_);  // the first one is being written
};

class GrpcServer;

// Deletes itself when gRPC is done with it.
class ServerLink final : public Link<grpc::ServerGenericBidiReactor> {
 public:
  ServerLink(GrpcServer* server, int32_t stream, Inbox* inbox)
      : Link(stream, inbox), server_(server) {
    Read();
  }
  void OnCancel() override { End(Unavailable("the connection has ended")); }
  void OnDone() override;
  using Link::End;

 private:
  void Close() override { Finish(grpc::Status::OK); }
  GrpcServer* const server_;
};

class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(grpc::StatusCode code) { Finish(grpc::Status(code, "")); }
  void OnDone() override { delete this; }
};

class GrpcServer final : public MessageServer, public grpc::CallbackGenericService {
 public:
  explicit GrpcServer(Inbox* inbox) : inbox_(inbox) {}
  ~GrpcServer() override {
    if (server_ == nullptr) return;
    {
      const MutexLock lock(mutex_);
      for (const auto& [stream, link] : links_) link->End(Unavailable("the server ends"));
    }
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    const MutexLock lock(mutex_);
    while (!links_.empty()) gone_.Wait(mutex_);
  }

  Status Start(const std::string& address) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetMaxSendMessageSize(kMaxMessageBytes);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    return server_ != nullptr ? Status() : Unavailable("{}: cannot listen there", address);
  }
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (context->method() != kMethod) return new Refusal(grpc::StatusCode::UNIMPLEMENTED);
    const MutexLock lock(mutex_);
    if (links_.size() >= kMaxStreams) return new Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED);
    const int32_t stream = next_stream_++;
    return links_[stream] = new ServerLink(this, stream, inbox_);
  }
  void Send(int32_t stream, std::string message) override {
    const MutexLock lock(mutex_);
    const auto found = links_.find(stream);
    if (found != links_.end()) found->second->Send(message);
  }
  void Remove(int32_t stream) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    links_.erase(stream);
    gone_.NotifyAll();
  }

 private:
  Inbox* const inbox_;
  Mutex mutex_;
  CondVar gone_;
  int32_t next_stream_ GUARDED_BY(mutex_) = 0;
  std::map<int32_t, ServerLink*> links_ GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

void ServerLink::OnDone() {
  server_->Remove(stream_);
  delete this;
}

class ClientLink final : public Link<grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>> {
 public:
  ClientLink(Inbox* inbox, grpc::GenericStub* stub) : Link(0, inbox) {
    stub->PrepareBidiStreamingCall(&context_, kMethod, grpc::StubOptions(), this);
    AddHold();  // writes start on threads that gRPC does not know
    Read();
    StartCall();
  }
  void OnDone(const grpc::Status&) override {
    const MutexLock lock(mutex_);
    done_ = true;
    changed_.NotifyAll();
  }
  void FinishSending() {
    constexpr std::chrono::seconds kPatience{5};
    Drain(std::chrono::steady_clock::now() + kPatience, [this] { StartWritesDone(); });
  }
  // Ends the call and waits until gRPC is done with it.
  void Stop() EXCLUDES(mutex_) {
    End(Unavailable("this side has ended the connection"));
    const MutexLock lock(mutex_);
    while (!done_) changed_.Wait(mutex_);
  }

 private:
  void Close() override {
    context_.TryCancel();
    RemoveHold();
  }
  grpc::ClientContext context_;
  Mutex mutex_;
  CondVar changed_;
  bool done_ GUARDED_BY(mutex_) = false;
};

class GrpcClient final : public MessageClient {
 public:
  GrpcClient(std::shared_ptr<grpc::Channel> channel, Inbox* inbox)
      : stub_(std::move(channel)), link_(inbox, &stub_) {}
  ~GrpcClient() override { link_.Stop(); }

  void Send(std::string message) override { link_.Send(message); }
  void Finish() override { link_.FinishSending(); }

 private:
  grpc::GenericStub stub_;
  ClientLink link_;
};

}  // namespace

Result<std::unique_ptr<MessageServer>> MessageServer::Listen(const std::string& address,
                                                             Inbox* inbox) {
  LogThroughOurs();
  auto server = std::make_unique<GrpcServer>(inbox);
  RETURN_IF_ERROR(server->Start(address));
  return std::unique_ptr<MessageServer>(std::move(server));
}

Result<std::unique_ptr<MessageClient>> MessageClient::Connect(const std::string& address,
                                                              std::chrono::milliseconds timeout,
                                                              Inbox* inbox) {
  LogThroughOurs();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + timeout)) {
    return Unavailable("{}: no driver answers there", address);
  }
  return std::unique_ptr<MessageClient>(std::make_unique<GrpcClient>(std::move(channel), inbox));
}

}  // namespace tokamak
