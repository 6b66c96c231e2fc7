// Implements the public EmbeddedServer: a Server and its I/O thread.
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/mutex.h"
#include "server/server.h"
#include "tokamak/server.h"

namespace tokamak {
namespace {

class ThreadedServer final : public EmbeddedServer {
 public:
  explicit ThreadedServer(std::unique_ptr<Server> server)
      : server_(std::move(server)), thread_([this] { Serve(); }) {}
  ~ThreadedServer() override {
    server_->Shutdown();
    server_->Shutdown();
    thread_.join();
  }

  uint16_t port() const override { return server_->port(); }
  void Shutdown() override { server_->Shutdown(); }
  void Reload() override { server_->Reload(); }
  Status Wait() override EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!ended_) changed_.Wait(mutex_);
    return status_;
  }

 private:
  void Serve() EXCLUDES(mutex_) {
    Status status = server_->Run();
    MutexLock lock(mutex_);
    status_ = std::move(status);
    ended_ = true;
    changed_.NotifyAll();
  }

  const std::unique_ptr<Server> server_;
  Mutex mutex_;
  CondVar changed_;
  bool ended_ GUARDED_BY(mutex_) = false;
  Status status_ GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

Result<std::unique_ptr<EmbeddedServer>> EmbeddedServer::Start(
    ServedModel served, const EmbeddedServerOptions& options) {
  ServerOptions server{options};
  server.handle_signals = false;
  ASSIGN_OR_RETURN(std::unique_ptr<Server> made, Server::Create(served, std::move(server)));
  return std::unique_ptr<EmbeddedServer>(new ThreadedServer(std::move(made)));
}

}  // namespace tokamak
