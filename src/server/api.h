// The routes: which path and method does what, and who may call it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "chat/chatml.h"
#include "server/api_keys.h"
#include "server/openai_request.h"
#include "server/transport/http.h"
#include "tokamak/engine.h"

namespace tokamak {

// Used on the I/O thread alone. The engine outlives it.
class Api {
 public:
  struct Options {
    std::string model_id;  // what clients call the model
    ApiKeys keys;
    double stuck_seconds = 60;  // /health says 503 when no step has retired for so long
  };
  Api(Engine& engine, Options options);

  void Handle(std::shared_ptr<HttpExchange> exchange);
  // From now on /health says 503 and nothing new is accepted.
  void StartDraining() { draining_ = true; }

 private:
  void Complete(const std::shared_ptr<HttpExchange>& exchange, bool chat);
  Status StartCompletion(const std::shared_ptr<HttpExchange>& exchange, bool chat);
  Result<std::vector<std::vector<int32_t>>> TokenizePrompts(const CompletionCall& call) const;
  HttpResponse Health() const;

  Engine& engine_;
  const Options options_;
  const int64_t started_;      // seconds since 1970
  const Result<ChatMl> chat_;  // how conversations become text
  uint64_t next_id_ = 0;
  const uint64_t id_salt_;  // makes response ids differ between runs
  bool draining_ = false;
};

}  // namespace tokamak
