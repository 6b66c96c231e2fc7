// Feed-forward layers. Gated: down(activation(gate(x)) · up(x)), arXiv:2002.05202. Plain:
// down(activation(up(x))), arXiv:1706.03762.
#pragma once

#include <string_view>

#include "nn/builder.h"
#include "nn/linear.h"
#include "nn/pass.h"
#include "nn/sublayer.h"

namespace tokamak::nn {

struct MlpShape {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  Activation activation = Activation::kSilu;
  bool bias = false;
  bool merged = false;  // gated: gate and up are stored as one weight, gate_up_proj
};

class Mlp final : public Sublayer {
 public:
  Mlp() = default;
  // Reads gate_proj, up_proj (or gate_up_proj) and down_proj below b.
  Mlp(const Builder& b, const MlpShape& shape);

  DType activation() const override { return gate_up_.activation(); }
  DType output() const override { return down_.output(); }
  void ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const override;

 private:
  Activation activation_ = Activation::kSilu;
  Linear gate_up_;
  Linear down_;
};

// A checkpoint's names for the projections of a plain MLP.
struct PlainMlpNames {
  std::string_view up = "up_proj", down = "down_proj";
};

class PlainMlp final : public Sublayer {
 public:
  PlainMlp() = default;
  // Reads the projections below b.
  PlainMlp(const Builder& b, const MlpShape& shape, const PlainMlpNames& names = {});

  DType activation() const override { return up_.activation(); }
  DType output() const override { return down_.output(); }
  void ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const override;

 private:
  Activation activation_ = Activation::kGelu;
  Linear up_;
  Linear down_;
};

}  // namespace tokamak::nn
