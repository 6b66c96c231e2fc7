// Operations of an MoE layer (arXiv:1701.06538), which sends each token to a few of many experts.
// Tokens are grouped by expert, so that a step reads each expert's weights once.
//
//   RouteTokens    router logits -> each token's experts and weights, and the order by expert
//   GatherRows     copies each token once per expert, in that order
//   GroupedLinear  multiplies each expert's rows with its weights
//   CombineExperts adds up each token's results, weighted
#pragma once

#include <cstdint>

#include "ops/packed_weight.h"
#include "tensor/tensor.h"

namespace tokamak {

// How a router's logits become a choice. s are the scores of all experts; c = s + bias.
//
//   groups   scores each of num_groups equal groups of experts by its c (group_score); outside the
//            best top_groups groups, c becomes 0 if s is a softmax, else -∞
//   experts  chooses the top_k highest c; of equal ones the lower id first
//   weights  their s, divided by their sum if `normalize`, times `scale`
struct RouterConfig {
  enum class Score {
    kSoftmax,        // softmax over all experts: Mixtral, Qwen, DeepSeek-V2
    kSigmoid,        // DeepSeek-V3, GLM-4.5
    kChosenSoftmax,  // chooses by logits, then a softmax over the chosen ones: gpt-oss
    kUniform,        // for benchmarks: random (ops/uniform_routing.h); all weights are 1 / top_k
  };
  enum class GroupScore {
    kBest,     // the c of its best expert: DeepSeek-V2
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

// Pair (t, j) is token t and its j-th expert. The grouped order is by expert, then by token. A
// token with a NaN logit goes to the first top_k experts with weights NaN.
struct RouteTokens {
  Tensor logits;  // f32 [T, num_experts]
  Tensor bias;    // f32 [num_experts], or empty; affects only the choice
  RouterConfig router;
  Tensor experts;  // out, i32 [T, top_k]: best first
  Tensor weights;  // out, f32 [T, top_k]
  Tensor tokens;   // out, i32 [T * top_k]: the token of each row of the grouped order
  Tensor rows;     // out, i32 [T, top_k]: the row of each pair
  Tensor offsets;  // out, i32 [num_experts + 1]: expert e has rows [offsets[e], offsets[e + 1])
};

// out[r, n] = Σ_k x[r, k] · W_e[n, k] + bias[e, n] for the rows r of each expert e. The bias is
// added before the sum is rounded to the type of `out`.
struct GroupedLinear {
  Tensor x;                              // [R, cols], of type weights->activation()
  const PackedStack* weights = nullptr;  // one per expert
  Tensor offsets;                        // i32 [experts + 1]
  Tensor bias;                           // f32 [experts, rows], or empty
  Tensor out;                            // [R, rows], of type weights->output()
};

// out[t] = Σ_j weights[t, j] · x[rows[t, j]], in ascending j, plus shared[t], which is scaled by
// sigmoid(shared_gate[t]) if there is a gate.
struct CombineExperts {
  Tensor x;            // f32 [R, hidden]
  Tensor rows;         // i32 [T, top_k]
  Tensor weights;      // f32 [T, top_k]
  Tensor shared;       // inner type [T, hidden], or empty
  Tensor shared_gate;  // f32 [T, 1], or empty
  Tensor out;          // f32 [T, hidden]
};

}  // namespace tokamak
