// The operations of an MoE layer (arXiv:1701.06538): each token goes to a few of many feed-forward
// layers. Tokens are grouped by expert, so that a step reads each expert's weights once.
//
//   RouteTokens    router logits -> each token's experts and weights, and the order by expert
//   GatherRows     tokens, once for each of their experts, in that order
//   GroupedLinear  every expert's product with its rows
//   CombineExperts each token's weighted sum
#pragma once

#include <cstdint>
#include <span>

#include "ops/packed_weight.h"
#include "tensor/tensor.h"

namespace tokamak {

// How a router's logits become a choice. With s the scores of all experts and c = s + bias:
//
//   groups   each of num_groups equal groups of experts is scored by its c (group_score); outside
//            the best top_groups of them, c becomes 0 where s is a softmax, else -∞
//   experts  the top_k highest c, the lower id first among equals
//   weights  their s, divided by their sum (normalize), times scale
struct RouterConfig {
  enum class Score {
    kSoftmax,        // over all experts: Mixtral, Qwen, DeepSeek-V2
    kSigmoid,        // DeepSeek-V3, GLM-4.5
    kChosenSoftmax,  // the logits choose; then a softmax over the chosen ones: gpt-oss
  };
  enum class GroupScore {
    kBest,     // of its best expert: DeepSeek-V2
    kTwoBest,  // the sum of its two best: DeepSeek-V3
  };

  int32_t num_experts = 0;
  int32_t top_k = 0;  // at most num_experts
  Score score = Score::kSoftmax;
  bool normalize = false;
  float scale = 1;
  int32_t num_groups = 1;  // divides num_experts
  int32_t top_groups = 1;
  GroupScore group_score = GroupScore::kBest;
};

// Pair (t, j) is token t with its j-th expert. The grouped order has the pairs of expert 0 first,
// then those of expert 1, and so on, each expert's by ascending token. A token whose logits are NaN
// goes to the first top_k experts with weights of NaN.
struct RouteTokens {
  Tensor logits;  // f32 [T, num_experts]
  Tensor bias;    // f32 [num_experts], or empty; for the choice alone
  RouterConfig router;
  Tensor experts;  // out, i32 [T, top_k]: best first
  Tensor weights;  // out, f32 [T, top_k]
  Tensor tokens;   // out, i32 [T * top_k]: the token of each row of the grouped order
  Tensor rows;     // out, i32 [T, top_k]: the row of each pair
  Tensor offsets;  // out, i32 [num_experts + 1]: expert e has rows [offsets[e], offsets[e + 1])
};

// out[r, n] = Σ_k x[r, k] · W_e[n, k] + bias[e, n] for the rows r of each expert e.
struct GroupedLinear {
  Tensor x;  // [R, cols], of the weights' activation type
  // One per expert, all of one shape and activation type.
  std::span<const PackedWeight* const> weights;
  Tensor offsets;  // i32 [experts + 1]
  Tensor bias;     // f32 [experts, rows], or empty
  Tensor out;      // f32 [R, rows]
};

// out[t] = Σ_j weights[t, j] · x[rows[t, j]], in ascending j, then + shared[t] or, with a gate,
// sigmoid(shared_gate[t]) · shared[t].
struct CombineExperts {
  Tensor x;            // f32 [R, hidden]
  Tensor rows;         // i32 [T, top_k]
  Tensor weights;      // f32 [T, top_k]
  Tensor shared;       // f32 [T, hidden], or empty
  Tensor shared_gate;  // f32 [T, 1], or empty
  Tensor out;          // f32 [T, hidden]
};

}  // namespace tokamak
