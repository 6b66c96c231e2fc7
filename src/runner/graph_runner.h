// Runs the forward pass of decode steps: by launching a graph (a CUDA graph, on NVIDIA GPUs)
// captured for that number of rows, or operation by operation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/model.h"
#include "nn/pass.h"
#include "tokamak/option_values.h"
#include "tokamak/status.h"

namespace tokamak {

// A decode step has one token per sequence and draws from each one's logits. Owned by the runner.
class GraphRunner {
 public:
  GraphRunner() = default;  // without graphs
  // kUnimplemented for kOn if the backend has no graphs. `max_rows`: the largest decode step.
  static Result<GraphRunner> Make(CudaGraphs cuda_graphs, const Ops& ops, int32_t max_rows);

  // The numbers of rows to capture before the first step, ascending. Empty without graphs.
  std::span<const int32_t> capture_sizes() const { return capture_sizes_; }
  // Captures one size; call it for every capture_sizes()[i] in order, with a pass of that many
  // padding rows. Every later pass of this size must have its tensors at the same addresses.
  Status Capture(const Model& model, nn::Pass& pass);
  // The number of rows to which a decode step of `rows` rows is padded; `rows` if it is not.
  int32_t PaddedRows(int32_t rows) const;
  // Runs Forward and Logits on all rows. Returns f32 [PaddedRows, vocab_size] in the pass's arena.
  Tensor Decode(const Model& model, nn::Pass& pass);

 private:
  struct CapturedGraph {
    std::unique_ptr<Graph> graph;
    Tensor logits;
  };

  // Index of the smallest graph with room for `rows` rows.
  size_t IndexOf(int32_t rows) const;

  std::vector<int32_t> capture_sizes_;
  std::vector<CapturedGraph> graphs_;  // one per size
};

}  // namespace tokamak
