// The gated feed-forward layer: down(activation(gate(x)) · up(x)). arXiv:2002.05202.
#pragma once

#include "nn/builder.h"
#include "nn/linear.h"
#include "nn/pass.h"

namespace tokamak::nn {

struct MlpShape {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  Activation activation = Activation::kSilu;
  bool bias = false;
};

class Mlp {
 public:
  Mlp() = default;
  // Reads gate_proj, up_proj and down_proj below b.
  Mlp(const Builder& b, const MlpShape& shape);

  DType activation() const { return gate_up_.activation(); }  // the type of x

  // x: [T, hidden_size] of activation(); out: f32 [T, hidden_size].
  void Forward(Pass& pass, Tensor x, Tensor out) const;

 private:
  Activation activation_ = Activation::kSilu;
  Linear gate_up_;
  Linear down_;
};

}  // namespace tokamak::nn
