// The routes: which path and method does what, and who may call it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "server/api_keys.h"
#include "server/low_priority_pool.h"
#include "server/prepare.h"
#include "server/transport/http.h"
#include "tokamak/engine.h"

namespace tokamak {

// Used on the I/O thread alone. The engine outlives it.
//
// A completion call is prepared (prepare.h) on a low-priority pool. Its exchange stays here: the
// pool gets the body and posts what came of it, and when the exchange is no longer in preparing_
// then (the client has gone, the server has shut down) nobody wants to know.
class Api {
 public:
  struct Options {
    std::string model_id;  // what clients call the model
    ApiKeys keys;
    double stuck_seconds = 60;  // /health says 503 when no step has retired for so long
    LowPriorityPool::Limits preparing;
    // Runs `work` on the I/O thread, in the order of the calls. From any thread.
    std::function<void(std::function<void()> work)> post;
  };
  Api(Engine& engine, Options options);

  void Handle(std::shared_ptr<HttpExchange> exchange);
  // From now on /health says 503 and nothing new is accepted. Calls `on_prepared` when the calls
  // that are being prepared have been submitted to the engine, which may be at once.
  void StartDraining(std::function<void()> on_prepared);
  // Answers 503 to the calls that are still being prepared.
  void AbandonPreparing();
  // Ends the pool's threads, which waits for the job at hand; nothing is posted afterwards, and
  // `on_prepared` is not called. Before `post` loses what it needs, and after Run has returned.
  void Stop();

 private:
  using CallId = LowPriorityPool::JobId;

  void Complete(const std::shared_ptr<HttpExchange>& exchange, bool chat);
  void OnPrepared(CallId id, Result<PreparedCall> prepared);
  Status Submit(const std::shared_ptr<HttpExchange>& exchange, PreparedCall prepared);
  void OnClientGone(CallId id);
  void TellWhenPrepared();
  HttpResponse Health() const;

  Engine& engine_;
  const Options options_;
  const int64_t started_;  // seconds since 1970
  const Preparer preparer_;
  uint64_t next_id_ = 0;
  const uint64_t id_salt_;  // makes response ids differ between runs
  bool draining_ = false;
  std::function<void()> on_prepared_;  // until it was called
  std::map<CallId, std::shared_ptr<HttpExchange>> preparing_;
  LowPriorityPool pool_;  // the last member: its threads use the others
};

}  // namespace tokamak
