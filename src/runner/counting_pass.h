// A model's pass on the counting backend, which has no memory behind its tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/model.h"
#include "ops/count/count_ops.h"
#include "runner/runner.h"
#include "tensor/arena.h"

namespace tokamak {

class CountingPass {
 public:
  // A pass of `num_tokens` tokens that computes the logits of the last `num_logits`. kUnimplemented
  // if the layers of a cache group differ in shape. `count` must outlive the pass.
  static Result<std::unique_ptr<CountingPass>> Make(const nn::CacheLayout& cache, CountOps& count,
                                                    const RunnerShape& shape, int64_t num_tokens,
                                                    int64_t num_logits);

  // Assigns tokens to sequences, for counting attention and states. Sequence s has the queries
  // [query_start_loc[s], query_start_loc[s + 1]), which are the last of its seq_lens[s] positions.
  // The lists must outlive the pass.
  void Fill(std::span<const int32_t> query_start_loc, std::span<const int32_t> seq_lens);

  // Gives a later stage of a pipeline the hidden states that it begins with.
  void AddHidden(const ModelSpec& spec) {
    if (spec.stage.first()) return;
    pass_.hidden = arena_.Allocate(DType::kF32, {pass_.num_tokens(), int64_t{spec.hidden_size}});
  }

  nn::Pass& pass() { return pass_; }
  const Arena& arena() const { return arena_; }

 private:
  CountingPass(CountOps& count, int64_t num_tokens, int64_t num_logits);

  const std::unique_ptr<Stream> stream_;
  Arena arena_ = Arena::Counting();
  std::vector<std::unique_ptr<AttentionPlan>> plans_;
  std::vector<nn::AttentionMetadata> groups_;
  std::vector<KvLayerView> layers_;
  std::vector<StateLayerView> state_layers_;
  nn::Pass pass_;
};

}  // namespace tokamak
