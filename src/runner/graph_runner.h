// Runs the forward pass of decode steps by launching graphs (CUDA graphs, on NVIDIA GPUs), each
// captured for a number of tokens.
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

// A decode step draws from the logits of all its tokens: each row has one token that follows its
// text, and then its drafts. A graph's batch has as many sequences as tokens, so that a graph fits
// any division of its tokens among rows (ops/graph_batch.h). Owned by the runner.
class GraphRunner {
 public:
  GraphRunner() = default;  // without graphs
  // kUnimplemented for kOn if the backend has no graphs. `max_tokens`: of the largest decode step.
  static Result<GraphRunner> Make(CudaGraphs cuda_graphs, const Ops& ops, int32_t max_tokens);

  // The numbers of tokens to capture before the first step, ascending. Empty without graphs.
  std::span<const int32_t> capture_sizes() const { return capture_sizes_; }
  // Captures one size; call it for every capture_sizes()[i] in order, with a pass of that many
  // tokens of padding. Every later pass of this size must have its tensors at the same addresses.
  Status Capture(const Model& model, nn::Pass& pass);
  // The number of tokens to which a decode step of `num_tokens` tokens is padded; 0 if no graph has
  // room for it.
  int32_t PaddedTokens(int32_t num_tokens) const;
  // Runs Forward and Logits on all tokens of a padded pass. Returns f32 [tokens, vocab_size] in its
  // arena.
  Tensor Decode(nn::Pass& pass);

 private:
  struct CapturedGraph {
    std::unique_ptr<Graph> graph;
    Tensor logits;
  };

  // Index of the smallest graph with room for so many tokens.
  size_t IndexOf(int32_t num_tokens) const;

  std::vector<int32_t> capture_sizes_;
  std::vector<CapturedGraph> graphs_;  // one per size
};

}  // namespace tokamak
