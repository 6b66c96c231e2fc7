// How the forward pass of a decode step reaches the device: operation by operation, or as a graph
// that was captured once for its number of rows and is launched as a whole.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "models/model.h"
#include "nn/pass.h"
#include "tokamak/status.h"

namespace tokamak {

// A decode step has one token per sequence, and draws from the logits of each. Owner: the runner.
class GraphRunner {
 public:
  virtual ~GraphRunner() = default;

  virtual std::string_view name() const = 0;
  // The numbers of rows to capture before the first step, ascending.
  virtual std::span<const int32_t> sizes() const = 0;
  // Takes a pass of sizes()[i] rows of padding, for every i in order. Its tensors have the
  // addresses that every later pass of so many rows has.
  virtual Status Capture(const Model& model, nn::Pass& pass) = 0;
  // How many rows a decode step of `rows` is padded to; `rows` when it is not.
  virtual int32_t PaddedRows(int32_t rows) const = 0;
  // Forward and Logits of all rows: f32 [PaddedRows, vocab_size], in the pass's arena.
  virtual Tensor Decode(const Model& model, nn::Pass& pass) = 0;
};

// "eager", "graph", or "auto": graphs where the backend has them. kInvalidArgument for other names,
// kUnimplemented for graphs that it has not. `max_rows`: the largest decode step.
Result<std::unique_ptr<GraphRunner>> MakeGraphRunner(const std::string& name, const Ops& ops,
                                                     int32_t max_rows);

}  // namespace tokamak
