// What a driver and its workers say to each other.
//
//   worker → driver: Hello                   who it is
//   driver → worker: LoadRank                with these options
//   worker → driver: Loading ..., Loaded
//   driver → worker: ConnectRank             when all have loaded
//   worker → driver: Connected
//   driver → worker: StartRank               with so much memory
//   worker → driver: ExecutorLimits          it is ready for steps
//   driver → worker: StepInput               submit it, and draw what waits for no mask
//   driver → worker: StepMasks               if the step has masked rows
//   worker → driver: StepOutput              from ranks of a pipeline's last stage, which draw
//   driver → worker: StepTaken               to the others, when it has taken the step back
//   worker → driver: RankStats               with the end of a step, at times
//   driver → worker: Quiesce, ResetRank      after an error, each answered by Quiet
//   either → other:  Status                  an error: of a step, or the reason of a refusal
//
// Several steps may be on their way; outputs come in the order of the steps. Neither side trusts
// the other: decoding bounds every list (base/codec.h), and no message holds a path, a command, a
// pointer or code. The worker's command line names the model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "step/executor_limits.h"
#include "step/step_codec.h"
#include "tokamak/engine_options.h"
#include "tokamak/engine_stats.h"
#include "tokamak/status.h"

namespace tokamak {

// Changes whenever the bytes of a message do.
inline constexpr uint64_t kWorkerProtocol = 4;

// Both sides must be the same program with the same model.
struct Hello {
  uint64_t protocol = kWorkerProtocol;
  uint64_t step_version = kStepVersion;
  std::string version = {};  // VersionText()
  std::string model = {};    // its name
  uint64_t weights = 0;      // CheckpointHash()
  int32_t rank = 0;

  bool has_known_version() const {
    return protocol == kWorkerProtocol && step_version == kStepVersion;
  }
  friend bool operator==(const Hello&, const Hello&) = default;
};

// The options that decide what a rank computes; no others are sent.
struct LoadRank {
  EngineOptions options = {};
  int32_t gpu = 0;       // the rank's own, as CUDA numbers them
  int32_t num_gpus = 0;  // this one and those behind it must be there; 0: the rank is on the CPU
};

struct Loading {
  double fraction = 0;
  friend bool operator==(const Loading&, const Loading&) = default;
};

struct Loaded {
  std::string backend = {};
  int64_t weight_bytes = 0;
  int64_t expert_bytes = 0;
  int64_t image_weight_bytes = 0;
  friend bool operator==(const Loaded&, const Loaded&) = default;
};

// All ranks have loaded: exchange values for the first time, if there are others.
struct ConnectRank {
  friend bool operator==(const ConnectRank&, const ConnectRank&) = default;
};
struct Connected {
  int64_t free_device_bytes = 0;  // of the rank's GPU
  friend bool operator==(const Connected&, const Connected&) = default;
};

// RunnerMemory.
struct StartRank {
  int64_t arena_bytes = 0;
  int32_t num_device_blocks = 0;
  int32_t num_host_blocks = 0;
  friend bool operator==(const StartRank&, const StartRank&) = default;
};

struct StepMasks {
  uint64_t number = 0;
  std::vector<TokenMask> masks = {};
  friend bool operator==(const StepMasks&, const StepMasks&) = default;
};

// Take the tokens of a step, which are drawn, and end it.
struct StepTaken {
  uint64_t number = 0;
  friend bool operator==(const StepTaken&, const StepTaken&) = default;
};

// Finish all steps. The answer means that this rank takes part in no exchange of values any more.
struct Quiesce {
  friend bool operator==(const Quiesce&, const Quiesce&) = default;
};
// All ranks are quiet: begin again, with step 0.
struct ResetRank {
  friend bool operator==(const ResetRank&, const ResetRank&) = default;
};
struct Quiet {
  friend bool operator==(const Quiet&, const Quiet&) = default;
};

using ToWorker = std::variant<LoadRank, StartRank, StepInput, StepMasks, Quiesce, ResetRank, Status,
                              StepTaken, ConnectRank>;
using ToDriver = std::variant<Hello, Loading, Loaded, ExecutorLimits, StepOutput, Quiet, Status,
                              RankStats, Connected>;

std::string EncodeToWorker(const ToWorker& message);
std::string EncodeToDriver(const ToDriver& message);

// kDataLoss, which names the field and the offset, for bytes that encoding does not write. A Hello
// of another version has nothing but its versions. `limits`: those of the rank, if it has started.
Result<ToWorker> DecodeToWorker(std::string_view bytes, const ExecutorLimits& limits);
Result<ToDriver> DecodeToDriver(std::string_view bytes, const ExecutorLimits& limits);

// What the message is, for errors: "a step's output".
std::string_view Describe(const ToDriver& message);

}  // namespace tokamak
