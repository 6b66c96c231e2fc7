// Which path is answered by whom. Who may call it is decided before (access.h).
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
#include "tokamak/engine.h"

namespace tokamak {

// Used on the I/O thread alone, except `busy`.
class Routes {
 public:
  struct Options {
    bool page = true;           // answer `/` with the web page
    double stuck_seconds = 60;  // /health says 503 when no step has retired for so long
    LowPriorityPool::Limits preparing;
    OpenAiApi::Options openai;
    std::string version;  // of the program
  };
  // The references outlive it.
  Routes(Engine& engine, const Access& access, const Observer& observer,
         boost::asio::io_context& io, Options options);
  ~Routes() { Stop(); }
  Routes(const Routes&) = delete;
  Routes& operator=(const Routes&) = delete;

  // Paths that need no key.
  static bool IsPublic(std::string_view path);

  // Answers a request. Returns when that is done, or the client has left.
  Awaitable<> Handle(ResponseWriter& writer);
  // From now on /health says 503 and nothing new is accepted. Calls `on_prepared` when the requests
  // that are being prepared have been submitted to the engine, which may be at once.
  void StartDraining(std::function<void()> on_prepared) {
    preparation_.StartDraining(std::move(on_prepared));
  }
  // Answers 503 to the requests that are still being prepared.
  void AbandonPreparing() { preparation_.Abandon(); }
  // Calls `on_made` when no answer's text is being made, which may be at once.
  void WhenTextsAreMade(std::function<void()> on_made) { text_maker_.WhenIdle(std::move(on_made)); }
  // Ends the pools' threads, which waits for the jobs at hand. `on_prepared` is not called
  // afterwards. After Run has returned.
  void Stop();
  // Whether a job is at hand, which Stop would wait for.
  bool busy() const { return preparation_.longest_seconds() || text_maker_.busy(); }

 private:
  bool IsGetPath(std::string_view path) const;
  void Get(ResponseWriter& writer);
  Awaitable<> Post(ResponseWriter& writer);
  struct HealthState {
    std::string_view name;  // "ok", or what is wrong
    std::string error;      // empty: the name says it all
  };
  HealthState CheckHealth(const EngineStats& stats) const;
  HttpResponse Health() const;
  HttpResponse Metrics() const;

  Engine& engine_;
  const Observer& observer_;
  const Options options_;
  const int64_t started_;  // seconds since 1970
  DebugState debug_state_;
  Preparation preparation_;
  TextMaker text_maker_;
  OpenAiApi openai_;
};

}  // namespace tokamak
