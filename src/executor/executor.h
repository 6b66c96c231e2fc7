// Executor: runs steps on one data-parallel rank, whether its runners are in this process, in
// worker processes, or (in simulations) nowhere.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "step/executor_limits.h"
#include "step/step_input.h"
#include "step/step_output.h"
#include "tokamak/engine_stats.h"
#include "tokamak/status.h"

namespace tokamak {

// A step goes through Submit, which starts the forward pass, Sample and SampleMasked, which start
// drawing tokens, and Wait, which returns the result. Steps retire in the order of their
// submission. All draws of step n are started before Submit(n + 1), whose input may need their
// tokens. Up to limits().depth steps may be in flight.
//
// An error is fatal for all steps in flight: the engine ends their sequences with it and calls
// Reset. Only the engine thread calls an executor, except for rank_stats.
class Executor {
 public:
  virtual ~Executor() = default;

  virtual const ExecutorLimits& limits() const = 0;

  // Starts the step's forward pass, and may return before it is done. Tokens that earlier steps
  // have yet to draw are filled in where the pass runs.
  virtual Status Submit(StepInput step) = 0;
  // Starts sampling the rows of step `number` that ask for it and wait for no mask. Called once,
  // after its Submit.
  virtual Status Sample(uint64_t number) = 0;
  // Starts sampling the step's masked rows. Called once, after its Sample, if it has any. `masks`
  // has one for each draw of a row. It may leave out rows whose sequences have ended meanwhile:
  // they draw any token.
  virtual Status SampleMasked(uint64_t number, std::vector<TokenMask> masks) = 0;
  // True when Wait(number) would return at once.
  virtual bool Done(uint64_t number) = 0;
  // Says how long the oldest step in flight should take, in seconds; 0: not known. An executor
  // whose workers may hang gives up a step that takes much longer.
  virtual void Expect(double) {}
  // Blocks until step `number`, the oldest in flight, is done.
  virtual Result<StepOutput> Wait(uint64_t number) = 0;
  // After an error: drops all steps in flight and frees all slots. Block contents become
  // unspecified, and the next step has number 0.
  virtual Status Reset() = 0;

  // Why no step can succeed until Reset, although no call has failed yet: a worker has died while
  // none was in flight.
  virtual Status Lost() { return Status(); }
  // From now on `wake` is called, on any thread, when Lost may have become an error. It must not
  // wait. An empty one means that the engine ends: a Reset that waits for workers gives up.
  virtual void OnLost(const std::function<void()>&) {}
  // Returns the measurements of its ranks, by rank; none if nobody measures. They are for
  // monitoring: nothing else may depend on them. Thread-safe.
  virtual std::vector<RankStats> rank_stats() const { return {}; }
};

}  // namespace tokamak
