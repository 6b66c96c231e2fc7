// The routes: which path and method does what. Who may call it is decided before (access.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/access/api_keys.h"
#include "server/low_priority_pool.h"
#include "server/monitor/debug_state.h"
#include "server/monitor/observer.h"
#include "server/openai/completion.h"
#include "server/openai/prepare.h"
#include "server/openai/text_maker.h"
#include "server/transport/exchange.h"
#include "tokamak/engine.h"

namespace tokamak {

// Used on the I/O thread alone. The engine outlives it.
class Api {
 public:
  struct Options {
    bool page = true;      // answer `/` with the web page
    std::string model_id;  // what clients call the model
    AnswerParsers parsers;
    double stuck_seconds = 60;  // /health says 503 when no step has retired for so long
    LowPriorityPool::Limits preparing;
    RequestLimits requests;
    std::function<Client(const HttpRequest&)> identify;  // whom a request is for
    std::string version;                                 // of the program
    std::shared_ptr<const Observer> observer;            // what it has counted goes to /metrics
  };
  Api(Engine& engine, boost::asio::io_context& io, Options options);

  // Paths that need no key.
  static bool IsPublic(std::string_view path);

  // Answers a request. Returns when that is done, or the client has left.
  Awaitable<> Handle(Exchange& exchange);
  // From now on /health says 503 and nothing new is accepted. Calls `on_prepared` when the calls
  // that are being prepared have been submitted to the engine, which may be at once.
  void StartDraining(std::function<void()> on_prepared);
  // Answers 503 to the calls that are still being prepared.
  void AbandonPreparing();
  // Calls `on_made` when no answer's text is being made, which may be at once.
  void WhenTextsAreMade(std::function<void()> on_made) { text_maker_.WhenIdle(std::move(on_made)); }
  // Ends the pools' threads, which waits for the jobs at hand. `on_prepared` is not called
  // afterwards. After Run has returned.
  void Stop();
  // Whether a job is at hand, which Stop would wait for.
  bool busy() const { return pool_.longest_seconds() || text_maker_.busy(); }

 private:
  // A call that has arrived and that the engine does not have yet. It is a call that is being
  // prepared until End.
  class Preparing {
   public:
    Preparing(Api& api, Exchange& exchange) : api_(api), exchange_(exchange) {
      api_.preparing_.insert(this);
    }
    ~Preparing() { End(); }
    Preparing(const Preparing&) = delete;
    Preparing& operator=(const Preparing&) = delete;
    void End();
    void Abandon();
    Exchange& exchange() { return exchange_; }
    bool wanted() const { return !exchange_.gone() && exchange_.status() == 0; }

   private:
    Api& api_;
    Exchange& exchange_;
  };

  bool IsGetPath(std::string_view path) const;
  void HandleGet(Exchange& exchange);
  Awaitable<> HandlePost(Exchange& exchange);
  Awaitable<> Complete(Exchange& exchange, bool chat);
  Awaitable<> Embed(Exchange& exchange);
  Awaitable<> Tokenize(Exchange& exchange, bool back);
  void GetModel(Exchange& exchange, std::string_view name);
  // Runs `prepare` with the call's body on the pool. Returns what it returns, or why nobody wants
  // to know it any more.
  template <typename T>
  Awaitable<Result<T>> Prepare(Preparing& call,
                               const std::function<Result<T>(std::string)>& prepare);
  // Submits a call to the engine.
  Status Submit(Exchange& exchange, PreparedCall prepared, std::optional<Completion>& completion);
  // "cmpl-" and digits that no other answer has.
  std::string NextId(std::string_view kind);
  // Counts the fields of a request that nobody here knows, and logs each name once.
  void NoteIgnored(const std::vector<std::string>& names);
  HttpResponse Refusal(const Status& status) const;
  void TellWhenPrepared();
  struct HealthState {
    std::string_view name;  // "ok", or what is wrong
    std::string error;      // empty: the name says it all
  };
  HealthState CheckHealth(const EngineStats& stats) const;
  HttpResponse Health() const;
  HttpResponse Metrics() const;

  Engine& engine_;
  const Options options_;
  const int64_t started_;  // seconds since 1970
  DebugState debug_state_;
  const Preparer preparer_;
  uint64_t next_id_ = 0;
  const uint64_t id_salt_;               // makes response ids differ between runs
  int64_t unknown_fields_ = 0;           // of requests, so far
  std::set<std::string> logged_fields_;  // their names, kMaxLoggedFields at most
  bool draining_ = false;
  std::function<void()> on_prepared_;  // until it was called
  std::set<Preparing*> preparing_;
  // The last members: their threads use the others.
  LowPriorityPool pool_;  // bodies
  TextMaker text_maker_;
};

}  // namespace tokamak
