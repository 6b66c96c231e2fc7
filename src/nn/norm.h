// Root-mean-square normalization (arXiv:1910.07467) and layer normalization (arXiv:1607.06450).
#pragma once

#include "nn/builder.h"
#include "nn/pass.h"

namespace tokamak::nn {

struct NormConfig {
  float eps = 0;
  float offset = 0;         // added to the stored weights: Gemma stores the difference from 1
  bool layer_norm = false;  // subtracts the mean first
  bool bias = false;        // for layer_norm
};

class Norm {
 public:
  Norm() = default;
  // Reads b.weight [size] and, with a bias, b.bias [size].
  Norm(const Builder& b, int64_t size, const NormConfig& config)
      : weight_((b / "weight").ReadVector(size, config.offset)), config_(config) {
    if (config.bias) bias_ = (b / "bias").ReadVector(size);
    if (config.layer_norm) b.Needs(Capability::kLayerNorm);
  }

  const Tensor& weight() const { return weight_.tensor; }  // f32 [size]
  float eps() const { return config_.eps; }

  // residual += delta, unless that is Tensor(); out = norm(residual) · weight + bias. All [T,
  // size]: delta in an inner type (ops/ops.h), residual f32, out in the next layer's type (with
  // layer_norm it may be `residual`). If there is a `copy`, it gets `out`, which is f32 then, in
  // its own type.
  void AddForward(Pass& pass, const Tensor& delta, Tensor residual, Tensor out,
                  Tensor copy = {}) const {
    const Tensor* x = delta.shape.rank() != 0 ? &delta : nullptr;
    const Convert convert = {.x = out, .out = copy};
    if (config_.layer_norm) {
      pass.ops.Run(AddLayerNorm{.x = x,
                                .residual = residual,
                                .weight = weight_.tensor,
                                .bias = bias_.tensor,
                                .eps = config_.eps,
                                .out = out},
                   pass.stream);
      if (copy.shape.rank() != 0) pass.ops.Run(convert, pass.stream);
      return;
    }
    const AddRmsNorm norm = {
        .x = x, .residual = residual, .weight = weight_.tensor, .eps = config_.eps, .out = out};
    if (copy.shape.rank() == 0) return pass.ops.Run(norm, pass.stream);
    pass.ops.Run(NormAndConvert{.norm = norm, .convert = convert}, pass.stream);
  }

  // out = norm(x) · weight + bias. x: [T, size] in an inner type; f32 for layer_norm.
  void Forward(Pass& pass, Tensor x, Tensor out) const { AddForward(pass, Tensor(), x, out); }

 private:
  OwnedTensor weight_;
  OwnedTensor bias_;  // or empty
  NormConfig config_;
};

}  // namespace tokamak::nn
