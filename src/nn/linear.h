// Linear layers, sharded for tensor parallelism as in arXiv:1909.08053, section 3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nn/builder.h"
#include "nn/pass.h"
#include "weights/row_range.h"

namespace tokamak::nn {

// y = x · Wᵀ + b with W [out features, in features]. Immutable.
class Linear {
 public:
  // One of several projections of the same input, stored as `name`.weight (and `name`.bias), [rows,
  // in]. This rank has the rows `range`.
  struct Output {
    std::string_view name;
    int64_t rows = 0;
    IndexRange range;
    std::string meaning;  // explains `rows` in messages
    // If there are any, this rank has these rows instead.
    std::vector<RowRun> runs = {};
  };

  Linear() = default;
  // Uses a packed weight, for example an embedding's for the output layer.
  explicit Linear(WeightPtr weight, OwnedTensor bias = {})
      : weight_(std::move(weight)), bias_(std::move(bias)) {}

  // Column-parallel: each rank computes its ranges of the outputs, in one product, side by side in
  // the order of `outputs`.
  static Linear Column(const Builder& b, const std::vector<Output>& outputs, int64_t in, bool bias);
  // The same if the checkpoint stores the outputs stacked in one weight, b's own. Ignores the
  // outputs' names.
  static Linear MergedColumn(const Builder& b, const std::vector<Output>& outputs, int64_t in,
                             bool bias);
  // Row-parallel: each rank holds the columns `range` of b's [out, in] weight; the ranks' results,
  // f32 if there are several, must be added. Only the first rank has the bias.
  static Linear Row(const Builder& b, int64_t out, int64_t in, IndexRange range, bool bias);
  // The same weight on every rank, with f32 outputs.
  static Linear Replicated(const Builder& b, int64_t out, int64_t in, bool bias);
  // Replicated, with f32 activations: the choice of experts must not depend on their rounding.
  static Linear Router(const Builder& b, int64_t out, int64_t in, bool bias = false);

  // The type of x, which the layer before writes.
  DType activation() const { return weight_->activation(); }
  // The type of `out`, which may be bf16 if there is no bias.
  DType output() const { return weight_->output(); }
  int64_t out_features() const { return weight_->rows(); }
  int64_t in_features() const { return weight_->cols(); }

  // The operation that Forward runs, for composite ones.
  tokamak::Linear Operation(Tensor x, Tensor out) const {
    return {.x = x, .weight = weight_.get(), .bias = bias_.tensor, .out = out};
  }
  // x: [T, in_features()] of activation(); out: [T, out_features()] of output().
  void Forward(Pass& pass, Tensor x, Tensor out) const;
  // The largest output of each row of x. Requires has_linear_argmax.
  void ForwardArgmax(Pass& pass, Tensor x, const ArgmaxLogits& out) const;

 private:
  WeightPtr weight_;
  OwnedTensor bias_;  // f32 [out_features()], or empty
};

}  // namespace tokamak::nn
