// Dispatches requests by path. Access control comes before (access.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "server/low_priority_pool.h"
#include "server/monitor/debug_state.h"
#include "server/monitor/observer.h"
#include "server/openai/api.h"
#include "server/preparation.h"
#include "server/text_maker.h"
#include "server/transport/response_writer.h"
#include "tokamak/server.h"

namespace tokamak {

// Used only on the I/O thread, except `busy`.
class Routes {
 public:
  struct Options {
    bool page = true;           // answer `/` with the web page
    double stuck_seconds = 60;  // /health is 503 if no step has retired for so long
    LowPriorityPool::Limits preparing;
    OpenAiApi::Options openai;
    std::string version;  // of this program
  };
  // All references outlive it.
  Routes(ServedModel served, const Access& access, const Observer& observer,
         boost::asio::io_context& io, Options options);
  ~Routes() { Stop(); }
  Routes(const Routes&) = delete;
  Routes& operator=(const Routes&) = delete;

  // Returns whether a path needs no key.
  static bool IsPublic(std::string_view path);

  // Answers a request. Returns when the response is complete or the client has left.
  Awaitable<> Handle(ResponseWriter& writer);
  // From now on /health is 503 and nothing new is accepted. Calls `on_prepared` as soon as the
  // engine has all requests that are being prepared, perhaps at once.
  void StartDraining(std::function<void()> on_prepared) {
    preparation_.StartDraining(std::move(on_prepared));
  }
  // Answers 503 to all requests that are being prepared.
  void AbandonPreparing() { preparation_.Abandon(); }
  // Calls `on_made` as soon as no long text is being written, perhaps at once.
  void WhenTextsAreMade(std::function<void()> on_made) { text_maker_.WhenIdle(std::move(on_made)); }
  // Ends the pools' threads after their current jobs, but does not wait for lookups of images'
  // hosts. `on_prepared` is not called afterwards. Must be called after Run has returned and before
  // `io` ends.
  void Stop();
  // Returns whether a job runs, which Stop would wait for.
  bool busy() const { return preparation_.longest_seconds() || text_maker_.busy(); }

 private:
  bool IsGetPath(std::string_view path) const;
  void Get(ResponseWriter& writer);
  Awaitable<> Post(ResponseWriter& writer);
  struct HealthState {
    std::string_view name;  // "ok", or what is wrong
    std::string error;      // may be empty
  };
  HealthState CheckHealth(const EngineStats& stats) const;
  HttpResponse Health() const;
  HttpResponse Metrics() const;

  LoadedModel& loaded_;
  const Observer& observer_;
  const Options options_;
  const int64_t started_;  // seconds since 1970
  DebugState debug_state_;
  Preparation preparation_;
  TextMaker text_maker_;
  OpenAiApi openai_;
};

}  // namespace tokamak
