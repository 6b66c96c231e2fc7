// Runs the forward pass of decode steps: as a graph (a CUDA graph, on NVIDIA GPUs) that was
// captured once for its number of rows and is launched as a whole, or operation by operation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "nn/pass.h"
#include "tokamak/status.h"

namespace tokamak {

// kInvalidArgument unless `value` is "on", "off" or "auto".
Status CheckCudaGraphs(std::string_view value);

// A decode step has one token per sequence, and draws from the logits of each. Owner: the runner.
class GraphRunner {
 public:
  GraphRunner() = default;  // without graphs
  // `cuda_graphs` is "on", "off" or "auto": on where the backend has graphs. kUnimplemented for
  // "on" where it has none. `max_rows`: the largest decode step.
  static Result<GraphRunner> Make(std::string_view cuda_graphs, const Ops& ops, int32_t max_rows);

  // The numbers of rows to capture before the first step, ascending; none without graphs.
  std::span<const int32_t> capture_sizes() const { return capture_sizes_; }
  // Takes a pass of capture_sizes()[i] rows of padding, for every i in order. Its tensors have the
  // addresses that every later pass of so many rows has.
  Status Capture(const Model& model, nn::Pass& pass);
  // How many rows a decode step of `rows` is padded to; `rows` when it is not.
  int32_t PaddedRows(int32_t rows) const;
  // Forward and Logits of all rows: f32 [PaddedRows, vocab_size], in the pass's arena.
  Tensor Decode(const Model& model, nn::Pass& pass);

 private:
  struct CapturedGraph {
    std::unique_ptr<Graph> graph;
    Tensor logits;
  };

  // Index of the smallest graph with room for so many rows.
  size_t IndexOf(int32_t rows) const;

  std::vector<int32_t> capture_sizes_;
  std::vector<CapturedGraph> graphs_;  // one per size
};

}  // namespace tokamak
