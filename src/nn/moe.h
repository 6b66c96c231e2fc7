// A mixture of experts in place of a feed-forward layer: a router sends each token to top_k of many
// gated MLPs, whose results are summed with the router's weights. arXiv:2101.03961,
// arXiv:2401.04088; shared experts: arXiv:2401.06066.
#pragma once

#include <vector>

#include "nn/builder.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/pass.h"

namespace tokamak::nn {

struct MoeShape {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // of an expert
  Activation activation = Activation::kSilu;
  ExpertGate gate;
  // An MLP that sees every token, besides the experts; 0: none.
  int64_t shared_intermediate_size = 0;
  bool shared_gate = false;  // its result counts sigmoid(x · shared_expert_gate) times
};

class Moe {
 public:
  Moe() = default;
  // Reads gate, experts.<e>.{gate,up,down}_proj (and shared_expert, shared_expert_gate) below b.
  Moe(const Builder& b, const MoeShape& shape);

  // The type of x: a router's product is exact.
  DType activation() const { return router_.activation(); }

  // x: [T, hidden_size] of activation(); out: f32 [T, hidden_size].
  void Forward(Pass& pass, Tensor x, Tensor out) const;

 private:
  // x in another type, where that is not its own.
  static Tensor In(Pass& pass, DType type, Tensor x);

  MoeShape shape_;
  Linear router_;
  // One per expert. The ops take arrays of pointers; WeightPtr keeps what they point to.
  std::vector<WeightPtr> weights_;
  std::vector<const PackedWeight*> gate_up_;
  std::vector<const PackedWeight*> down_;
  Mlp shared_;
  Linear shared_gate_;
};

}  // namespace tokamak::nn
