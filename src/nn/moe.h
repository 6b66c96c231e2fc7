// An MoE layer, in place of a feed-forward layer: a router sends each token to top_k of many gated
// MLPs (experts) and adds up their results with its weights. arXiv:2101.03961, arXiv:2401.04088;
// shared experts: arXiv:2401.06066.
#pragma once

#include <string_view>

#include "nn/builder.h"
#include "nn/experts.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/pass.h"
#include "nn/sublayer.h"

namespace tokamak::nn {

// A checkpoint's names for the parts of an MoE layer.
struct MoeNames {
  std::string_view router = "gate";
  std::string_view gate_proj = "gate_proj";  // of an expert
  std::string_view up_proj = "up_proj";
  std::string_view down_proj = "down_proj";
  std::string_view shared = "shared_expert";
};

struct MoeShape {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // of an expert
  Activation activation = Activation::kSilu;
  RouterConfig router;
  // The MLP for every token, in addition to the experts; 0: none.
  int64_t shared_intermediate_size = 0;
  bool shared_gate = false;  // scales the shared MLP's result by sigmoid(x · shared_expert_gate)
  bool score_correction_bias = false;  // the choice adds gate.e_score_correction_bias to the scores
  bool router_bias = false;
  bool expert_bias = false;
  ExpertStorage storage = ExpertStorage::kSeparate;
  float swiglu_limit = 0;  // for Activation::kClampedSwiglu
  float swiglu_alpha = 0;
  MoeNames names = {};
};

class Moe final : public Sublayer {
 public:
  Moe() = default;
  // Reads gate and experts (and shared_expert, shared_expert_gate) below b, by the shape's names.
  Moe(const Builder& b, const MoeShape& shape);

  // f32, which the router does not round; the copy is for the experts.
  DType activation() const override { return router_.activation(); }
  DType copy_type() const override { return experts_.gate_up().activation(); }
  DType output() const override { return DType::kF32; }
  void ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const override;

 private:
  MoeShape shape_;
  int32_t moe_layer_ = 0;  // index among the model's MoE layers
  Linear router_;
  OwnedTensor score_correction_bias_;  // f32 [num_experts], or empty
  Experts experts_;
  Mlp shared_;
  Linear shared_gate_;
};

}  // namespace tokamak::nn
