// Feed-forward layers. Gated: down(activation(gate(x)) · up(x)), arXiv:2002.05202. Plain:
// down(activation(up(x))), arXiv:1706.03762.
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
  bool merged = false;  // gate and up are stored as one weight, gate_up_proj
};

class Mlp {
 public:
  Mlp() = default;
  // Reads gate_proj, up_proj (or gate_up_proj) and down_proj below b.
  Mlp(const Builder& b, const MlpShape& shape);

  DType activation() const { return gate_up_.activation(); }  // the type of x
  DType output() const { return down_.output(); }             // the type of out

  // x: [T, hidden_size] of activation(); out: [T, hidden_size] of output().
  void Forward(Pass& pass, Tensor x, Tensor out) const;

 private:
  Activation activation_ = Activation::kSilu;
  Linear gate_up_;
  Linear down_;
};

struct PlainMlpShape {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  Activation activation = Activation::kGelu;
  bool bias = false;
};

class PlainMlp {
 public:
  PlainMlp() = default;
  // Reads up_proj and down_proj below b.
  PlainMlp(const Builder& b, const PlainMlpShape& shape);

  DType activation() const { return up_.activation(); }  // the type of x
  DType output() const { return down_.output(); }        // the type of out

  // x: [T, hidden_size] of activation(); out: [T, hidden_size] of output().
  void Forward(Pass& pass, Tensor x, Tensor out) const;

 private:
  Activation activation_ = Activation::kGelu;
  Linear up_;
  Linear down_;
};

}  // namespace tokamak::nn
