#include "runner/graph_runner.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace tokamak {
namespace {

// Larger decode steps are not captured: there the host is no longer the bottleneck.
constexpr int32_t kLargestGraph = 512;

Tensor RunModel(const Model& model, nn::Pass& pass) {
  return model.Logits(pass, model.Forward(pass));
}

}  // namespace

Result<GraphRunner> GraphRunner::Make(CudaGraphs cuda_graphs, const Ops& ops, int32_t max_tokens) {
  GraphRunner runner;
  if (!ops.has_graphs()) {
    if (cuda_graphs != CudaGraphs::kOn) return runner;
    return Unimplemented("cuda_graphs=on: the {} backend does not support graphs; use off or auto",
                         ops.name());
  }
  if (cuda_graphs == CudaGraphs::kOff) return runner;
  // From 16 tokens on, four sizes per doubling bound the padding; from 128 to 256 there are eight.
  // From 32 on, all but the largest are multiples of 8, the rows of the smallest tile of a matrix
  // product.
  const int32_t largest = std::min(max_tokens, kLargestGraph);
  for (int32_t size = 1; size < largest;) {
    runner.capture_sizes_.push_back(size);
    const auto power = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(size)));
    size += size < 4 ? size : std::max(4, power == 128 ? 16 : power / 4);
  }
  runner.capture_sizes_.push_back(largest);
  return runner;
}

Status GraphRunner::Capture(const Model& model, nn::Pass& pass) {
  // The first run lets the backend create what it makes on first use.
  (void)RunModel(model, pass);
  pass.arena.Reset();
  Tensor logits;
  ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph,
                   pass.ops.Capture(pass.stream, [&] { logits = RunModel(model, pass); }));
  graphs_.push_back({std::move(graph), logits});
  return Status();
}

int32_t GraphRunner::PaddedTokens(int32_t num_tokens) const {
  const size_t i = IndexOf(num_tokens);
  return i < graphs_.size() ? capture_sizes_[i] : 0;
}

Tensor GraphRunner::Decode(nn::Pass& pass) {
  const auto num_tokens = static_cast<int32_t>(pass.num_tokens());
  const size_t i = IndexOf(num_tokens);
  CHECK(i < graphs_.size() && capture_sizes_[i] == num_tokens);
  pass.ops.Launch(*graphs_[i].graph, pass.stream);
  return graphs_[i].logits;
}

size_t GraphRunner::IndexOf(int32_t num_tokens) const {
  return static_cast<size_t>(
      std::lower_bound(capture_sizes_.begin(), capture_sizes_.end(), num_tokens) -
      capture_sizes_.begin());
}

}  // namespace tokamak
