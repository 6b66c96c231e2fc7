// Executor: runs steps on one data-parallel rank, wherever its runners are: in this process, in
// worker processes, or (in simulations) nowhere.
#pragma once

#include <cstdint>
#include <vector>

#include "step/step_input.h"
#include "step/step_output.h"
#include "tokamak/status.h"

namespace tokamak {

// What the engine may ask of an executor.
struct ExecutorLimits {
  CacheSpec cache;
  int32_t max_seqs = 0;         // sequences with state at the same time
  int32_t max_step_tokens = 0;  // tokens in one step
  int32_t max_context = 0;      // positions of one sequence
  int32_t vocab_size = 0;
  int depth = 1;               // steps in flight at once
  int32_t num_moe_layers = 0;  // of StepOutput::expert_loads
};

// A step runs in two halves. Submit starts the forward pass, Sample starts drawing tokens, Wait
// gives the result; each step goes through all three, in order, and steps retire in the order of
// their submission. Sample(n) comes before Submit(n + 1), whose input may need the tokens of step
// n; up to limits().depth steps are submitted and not yet waited for.
//
// An error from any of them is fatal for the steps in flight: the engine ends their sequences with
// that error and calls Reset.
// Called by the engine thread alone.
class Executor {
 public:
  virtual ~Executor() = default;

  virtual const ExecutorLimits& limits() const = 0;

  // Takes the step and starts its forward pass. May return before the pass is done; the values that
  // earlier steps have yet to draw are filled in where the pass runs.
  virtual Status Submit(StepInput step) = 0;
  // Starts sampling the rows of step `number` that ask for it, once, after its Submit.
  virtual Status Sample(uint64_t number, std::vector<TokenMask> masks) = 0;
  // True when Wait(number) would return at once.
  virtual bool Done(uint64_t number) = 0;
  // Blocks until step `number`, the oldest in flight, is done.
  virtual Result<StepOutput> Wait(uint64_t number) = 0;
  // Drops all steps in flight and all slots, after an error. Block contents are unspecified then.
  // The next step has number 0.
  virtual Status Reset() = 0;
};

}  // namespace tokamak
