// The routes: which path and method does what. Who may call it is decided before (access.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/access/api_keys.h"
#include "server/low_priority_pool.h"
#include "server/monitor/debug_state.h"
#include "server/monitor/observer.h"
#include "server/openai/prepare.h"
#include "server/openai/text_maker.h"
#include "server/transport/http.h"
#include "tokamak/engine.h"

namespace tokamak {

// Used on the I/O thread alone. The engine outlives it.
//
// A completion or embedding call is prepared (prepare.h) on a low-priority pool. Its exchange stays
// here: the pool gets the body and posts what came of it, and when the exchange is no longer in
// preparing_ then (the client has gone, the server has shut down) nobody wants to know.
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
    // Runs `work` on the I/O thread, in the order of the calls. From any thread.
    std::function<void(std::function<void()> work)> post;
    // Runs `work` on the I/O thread after that time. I/O thread.
    std::function<void(double seconds, std::function<void()> work)> post_after;
    std::string version;                       // of the program
    std::shared_ptr<const Observer> observer;  // what it has counted goes to /metrics
  };
  Api(Engine& engine, boost::asio::io_context& io, Options options);

  // Paths that need no key.
  static bool IsPublic(std::string_view path);

  void Handle(const std::shared_ptr<HttpExchange>& exchange);
  // From now on /health says 503 and nothing new is accepted. Calls `on_prepared` when the calls
  // that are being prepared have been submitted to the engine, which may be at once.
  void StartDraining(std::function<void()> on_prepared);
  // Answers 503 to the calls that are still being prepared.
  void AbandonPreparing();
  // Calls `on_made` when no answer's text is being made, which may be at once.
  void WhenTextsAreMade(std::function<void()> on_made);
  // Ends the pool's threads, which waits for the job at hand; nothing is posted afterwards, and
  // `on_prepared` is not called. Before `post` loses what it needs, and after Run has returned.
  void Stop();
  // Whether a job is at hand, which Stop would wait for.
  bool busy() const { return pool_.longest_seconds() || making_pool_.longest_seconds(); }

 private:
  using CallId = LowPriorityPool::JobId;
  // Answers the exchange, or returns why not. Made from a body on the pool, run on the I/O thread.
  using Answer = std::function<Status(const std::shared_ptr<HttpExchange>&)>;

  bool IsGetPath(std::string_view path) const;
  void HandleGet(const std::shared_ptr<HttpExchange>& exchange);
  void HandlePost(const std::shared_ptr<HttpExchange>& exchange);
  void GetModel(const std::shared_ptr<HttpExchange>& exchange, std::string_view name);
  // Runs `prepare` on the pool and what it returns here, where the client still waits then.
  void Prepare(const std::shared_ptr<HttpExchange>& exchange,
               std::function<Answer(std::string body)> prepare);
  Answer ToCompletion(Result<PreparedCall> prepared);
  Answer ToEmbedding(Result<PreparedEmbedding> prepared);
  Answer ToResponse(Result<PreparedAnswer> prepared);
  // "cmpl-" and digits that no other answer has.
  std::string NextId(std::string_view kind);
  // Counts the fields of a request that nobody here knows, and logs each name once.
  void NoteIgnored(const std::vector<std::string>& names);
  void OnPrepared(CallId id, const Answer& answer);
  HttpResponse Refusal(const Status& status) const;
  Status Submit(const std::shared_ptr<HttpExchange>& exchange, PreparedCall prepared);
  void OnClientGone(CallId id);
  void TellWhenPrepared();
  // The TextMaker of answers.
  void MakeText(size_t bytes, std::function<std::string()> make,
                std::function<void(std::string text)> then);
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
  const std::shared_ptr<DebugState> debug_state_;
  const Preparer preparer_;
  uint64_t next_id_ = 0;
  const uint64_t id_salt_;               // makes response ids differ between runs
  int64_t unknown_fields_ = 0;           // of requests, so far
  std::set<std::string> logged_fields_;  // their names, kMaxLoggedFields at most
  bool draining_ = false;
  std::function<void()> on_prepared_;  // until it was called
  std::map<CallId, std::shared_ptr<HttpExchange>> preparing_;
  int making_ = 0;                 // texts of answers
  std::function<void()> on_made_;  // until it was called
  // The last members: their threads use the others.
  LowPriorityPool pool_;         // bodies
  LowPriorityPool making_pool_;  // texts, which are not to wait for bodies
};

}  // namespace tokamak
