// Root-mean-square normalization (arXiv:1910.07467) and layer normalization (arXiv:1607.06450).
#pragma once

#include "nn/builder.h"
#include "nn/pass.h"

namespace tokamak::nn {

class RmsNorm {
 public:
  RmsNorm() = default;
  // Reads b.weight [size] and adds `offset` to it: Gemma stores the difference from 1.
  RmsNorm(const Builder& b, int64_t size, float eps, float offset = 0)
      : weight_((b / "weight").ReadVector(size, offset)), eps_(eps) {}

  const Tensor& weight() const { return weight_.tensor; }  // f32 [size]
  float eps() const { return eps_; }

  // residual += delta, unless that is Tensor(); out = norm(residual) · weight. delta: [T, size] in
  // an inner type (ops/ops.h); residual: f32 [T, size]; out: [T, size] in the next layer's type. If
  // there is a `copy`, it gets `out`, which is f32 then, in its own type.
  void AddForward(Pass& pass, const Tensor& delta, Tensor residual, Tensor out,
                  Tensor copy = {}) const {
    const AddRmsNorm norm = {.x = delta.shape.rank() != 0 ? &delta : nullptr,
                             .residual = residual,
                             .weight = weight_.tensor,
                             .eps = eps_,
                             .out = out};
    if (copy.shape.rank() == 0) return pass.ops.Run(norm, pass.stream);
    pass.ops.Run(NormAndConvert{.norm = norm, .convert = {.x = out, .out = copy}}, pass.stream);
  }

  // out = norm(x) · weight. x: [T, size] in an inner type, unchanged.
  void Forward(Pass& pass, Tensor x, Tensor out) const { AddForward(pass, Tensor(), x, out); }

 private:
  OwnedTensor weight_;
  float eps_ = 0;
};

class LayerNorm {
 public:
  LayerNorm() = default;
  // Reads b.weight [size] and, with `bias`, b.bias [size].
  LayerNorm(const Builder& b, int64_t size, float eps, bool bias)
      : weight_((b / "weight").ReadVector(size)), eps_(eps) {
    if (bias) bias_ = (b / "bias").ReadVector(size);
    b.Needs(Capability::kLayerNorm);
  }

  // residual += delta, unless that is Tensor(); out = norm(residual) · weight + bias. All [T,
  // size]: delta in an inner type (ops/ops.h), residual f32, out in the next layer's type or
  // `residual`; `copy` as above.
  void AddForward(Pass& pass, const Tensor& delta, Tensor residual, Tensor out,
                  Tensor copy = {}) const {
    pass.ops.Run(AddLayerNorm{.x = delta.shape.rank() != 0 ? &delta : nullptr,
                              .residual = residual,
                              .weight = weight_.tensor,
                              .bias = bias_.tensor,
                              .eps = eps_,
                              .out = out},
                 pass.stream);
    if (copy.shape.rank() != 0) pass.ops.Run(Convert{.x = out, .out = copy}, pass.stream);
  }

  // out = norm(x) · weight + bias. x: f32 [T, size], unchanged unless it is `out`.
  void Forward(Pass& pass, Tensor x, Tensor out) const { AddForward(pass, Tensor(), x, out); }

 private:
  OwnedTensor weight_;
  OwnedTensor bias_;  // or empty
  float eps_ = 0;
};

}  // namespace tokamak::nn
