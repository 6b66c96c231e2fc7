#include "server/monitor/observer.h"

#include <chrono>
#include <utility>

namespace tokamak {
namespace {

double UnixNow() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

// Stands between a handler and its exchange, and sees what passes.
class Observer::Watched final : public HttpExchange, public std::enable_shared_from_this<Watched> {
 public:
  Watched(std::shared_ptr<Observer> observer, std::shared_ptr<HttpExchange> exchange)
      : observer_(std::move(observer)), exchange_(std::move(exchange)) {
    entry_.time = UnixNow();
    entry_.method = exchange_->request().method;
    entry_.path = exchange_->request().path;
  }
  // Until the handler gives something of its own to do, the exchange does not keep us.
  void Start() {
    exchange_->OnClientGone([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Gone();
    });
  }

  const HttpRequest& request() const override { return exchange_->request(); }
  std::string TakeBody() override { return exchange_->TakeBody(); }
  void Respond(HttpResponse response) override {
    if (gone_ || entry_.status != 0) return;
    entry_.status = response.status;
    entry_.bytes = request().method == "HEAD" ? 0 : response.body.size();
    exchange_->Respond(std::move(response));
    End();
  }
  void StartStream(HttpResponse head) override {
    if (gone_ || entry_.status != 0) return;
    entry_.status = head.status;
    exchange_->StartStream(std::move(head));
  }
  void Write(std::string data) override {
    if (gone_ || ended_) return;
    entry_.bytes += data.size();
    exchange_->Write(std::move(data));
  }
  void Finish() override {
    if (gone_ || ended_) return;
    exchange_->Finish();
    End();
  }
  // Kept by the exchange and not here: it lets go of what may own us when the answer is complete.
  void OnClientGone(std::function<void()> on_gone) override {
    exchange_->OnClientGone([self = shared_from_this(), on_gone = std::move(on_gone)] {
      on_gone();
      self->Gone();
    });
  }
  void OnBacklog(size_t bytes, std::function<void(bool full)> on_backlog) override {
    exchange_->OnBacklog(bytes, std::move(on_backlog));
  }
  void Post(std::function<void()> work) override { exchange_->Post(std::move(work)); }

 private:
  void Gone() {
    if (gone_) return;
    gone_ = true;
    if (ended_) return;  // the answer was complete, its last bytes did not arrive
    entry_.client_gone = true;
    ++observer_->counters_.clients_gone;
    End();
  }
  void End() {
    if (std::exchange(ended_, true) || observer_->log_ == nullptr) return;
    entry_.duration =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    entry_.notes = std::move(notes);
    observer_->log_->Write(entry_);
  }

  const std::shared_ptr<Observer> observer_;
  const std::shared_ptr<HttpExchange> exchange_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  AccessLogEntry entry_;
  bool gone_ = false;
  bool ended_ = false;
};

std::shared_ptr<HttpExchange> Observer::Watch(std::shared_ptr<HttpExchange> exchange) {
  auto watched = std::make_shared<Watched>(shared_from_this(), std::move(exchange));
  watched->Start();
  return watched;
}

void Observer::OnRefused(std::string_view method, std::string_view path, int status, size_t bytes) {
  if (log_ == nullptr) return;
  AccessLogEntry entry;
  entry.time = UnixNow();
  entry.method = method;
  entry.path = path;
  entry.status = status;
  entry.bytes = bytes;
  log_->Write(entry);
}

}  // namespace tokamak
