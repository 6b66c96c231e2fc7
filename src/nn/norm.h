// Root-mean-square normalization, arXiv:1910.07467.
#pragma once

#include "nn/builder.h"
#include "nn/pass.h"

namespace tokamak::nn {

class RmsNorm {
 public:
  RmsNorm() = default;
  // Reads b.weight [size].
  RmsNorm(const Builder& b, int64_t size, float eps)
      : weight_((b / "weight").ReadVector(size)), eps_(eps) {}

  const Tensor& weight() const { return weight_.tensor; }  // f32 [size]
  float eps() const { return eps_; }

  // residual += delta, unless that is Tensor(); out = norm(residual) · weight.
  // delta, residual: f32 [T, size]; out: [T, size] in the type that its reader wants.
  void AddForward(Pass& pass, const Tensor& delta, Tensor residual, Tensor out) const {
    pass.ops.Run(AddRmsNorm{.x = delta.shape.rank() != 0 ? &delta : nullptr,
                            .residual = residual,
                            .weight = weight_.tensor,
                            .eps = eps_,
                            .out = out},
                 pass.stream);
  }

 private:
  OwnedTensor weight_;
  float eps_ = 0;
};

}  // namespace tokamak::nn
