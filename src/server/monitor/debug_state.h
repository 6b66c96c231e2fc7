// /debug/state: the engine's state in detail, as JSON.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/transport/mailbox.h"
#include "server/transport/response_writer.h"
#include "tokamak/loaded_model.h"

namespace tokamak {

struct DebugStateInfo {
  std::string version;   // of this program
  std::string model_id;  // the name that clients use
  double started = 0;    // start of the server, seconds since 1970
};

// Rates per second, over about the last second.
struct DebugRates {
  double prompt_tok_s = 0;
  double output_tok_s = 0;
  double steps_s = 0;
  double weight_gb_s = 0;
  double kv_gb_s = 0;
  struct Rank {
    double busy = 0;  // share of the time
    double wait = 0;  // share of the time, for other ranks
    double received_mb_s = 0;
  };
  std::vector<Rank> ranks;  // as in EngineStats
};
DebugRates RatesBetween(const EngineSnapshot& before, const EngineSnapshot& after,
                        const ModelInfo& model);

std::string FormatDebugState(const EngineSnapshot& snapshot, const DebugRates& rates,
                             const ModelInfo& model, const std::string& fingerprint,
                             const DebugStateInfo& info);

// Asks the engine for a snapshot when a client requests the state; all waiting clients get the same
// one. Used only on the I/O thread. The engine outlives it.
class DebugState {
 public:
  DebugState(LoadedModel& loaded, DebugStateInfo info, boost::asio::io_context& io)
      : loaded_(loaded), info_(std::move(info)), snapshots_(io, [this] { OnSnapshot(); }) {}

  Awaitable<> Handle(ResponseWriter& writer);
  // Ignores snapshots that come later. Must be called before `io` ends.
  void Stop() { snapshots_.Close(); }

 private:
  void OnSnapshot();

  LoadedModel& loaded_;
  const DebugStateInfo info_;
  Mailbox<std::shared_ptr<const EngineSnapshot>> snapshots_;
  std::set<ResponseWriter*> waiting_;
  bool asked_ = false;                                         // the engine owes us a snapshot
  std::deque<std::shared_ptr<const EngineSnapshot>> history_;  // of about the last second
  std::string body_;                                           // latest state; empty: none yet
};

}  // namespace tokamak
