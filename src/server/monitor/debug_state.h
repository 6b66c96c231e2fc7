// /debug/state: what the engine is doing, in detail, as JSON for people and pages that watch.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "server/transport/mailbox.h"
#include "server/transport/response_writer.h"
#include "tokamak/engine.h"

namespace tokamak {

struct DebugStateInfo {
  std::string version;   // of the program
  std::string model_id;  // as clients call it
  double started = 0;    // the server, seconds since 1970
};

// Per second, over about the last second.
struct DebugRates {
  double prompt_tok_s = 0;
  double output_tok_s = 0;
  double steps_s = 0;
  double weight_gb_s = 0;
  double kv_gb_s = 0;
};
DebugRates RatesBetween(const EngineSnapshot& before, const EngineSnapshot& after,
                        const ModelInfo& model);

std::string FormatDebugState(const EngineSnapshot& snapshot, const DebugRates& rates,
                             const ModelInfo& model, const std::string& fingerprint,
                             const DebugStateInfo& info);

// Used on the I/O thread alone. Asks the engine for a snapshot when a client asks, so that without
// clients nothing happens; all clients that wait get the same one. The engine outlives it.
class DebugState {
 public:
  DebugState(Engine& engine, DebugStateInfo info, boost::asio::io_context& io)
      : engine_(engine), info_(std::move(info)), snapshots_(io, [this] { OnSnapshot(); }) {}

  Awaitable<> Handle(ResponseWriter& writer);
  // The engine's answers are of no interest any more. Before `io` ends.
  void Stop() { snapshots_.Close(); }

 private:
  void OnSnapshot();

  Engine& engine_;
  const DebugStateInfo info_;
  Mailbox<std::shared_ptr<const EngineSnapshot>> snapshots_;
  std::set<ResponseWriter*> waiting_;
  bool asked_ = false;  // the engine has been, and has not answered
  std::deque<std::shared_ptr<const EngineSnapshot>> history_;  // of the last second or so
  std::string body_;                                           // of the latest; empty: none yet
};

}  // namespace tokamak
