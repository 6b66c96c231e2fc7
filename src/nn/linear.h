// Linear layers, cut for tensor parallelism as in arXiv:1909.08053, section 3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nn/builder.h"
#include "nn/pass.h"

namespace tokamak::nn {

// y = x · Wᵀ + b with W [out features, in features]. Immutable.
class Linear {
 public:
  // One of several projections of the same input, stored as `name`.weight (and `name`.bias): rows
  // `range` of [rows, in] belong to this rank.
  struct Output {
    std::string_view name;
    int64_t rows = 0;
    IndexRange range;
    std::string meaning;  // of `rows`, for messages
  };

  Linear() = default;
  // An output layer that shares the packed weight of an embedding, or one that was packed
  // otherwise.
  explicit Linear(WeightPtr weight, OwnedTensor bias = {})
      : weight_(std::move(weight)), bias_(std::move(bias)) {}

  // Column-parallel: each rank computes its ranges of the outputs, merged into one product whose
  // results lie side by side in the order of `outputs`.
  static Linear Column(const Builder& b, const std::vector<Output>& outputs, int64_t in, bool bias);
  // The same from a checkpoint that has stored the outputs as one weight already, b's own, one
  // below the other. The outputs' names do not matter.
  static Linear MergedColumn(const Builder& b, const std::vector<Output>& outputs, int64_t in,
                             bool bias);
  // Row-parallel: each rank holds the columns `range` of b's [out, in] weight and computes a part
  // of every sum; the ranks' results are to be added. The bias is the first rank's.
  static Linear Row(const Builder& b, int64_t out, int64_t in, IndexRange range, bool bias);
  // The same weight on every rank.
  static Linear Replicated(const Builder& b, int64_t out, int64_t in, bool bias);
  // The same, for a choice that should not depend on how activations are rounded.
  static Linear Router(const Builder& b, int64_t out, int64_t in, bool bias = false);
  // The weight of Row alone.
  static WeightPtr RowWeight(const Builder& b, int64_t out, int64_t in, IndexRange range);

  // What x must be made of: layers that feed this one write it in this type.
  DType activation() const { return weight_->activation(); }
  int64_t out_features() const { return weight_->rows(); }
  int64_t in_features() const { return weight_->cols(); }

  // x: [T, in_features()] of activation(); out: f32 [T, out_features()].
  void Forward(Pass& pass, Tensor x, Tensor out) const;
  // The largest output of each row of x, for backends that have LinearArgmax.
  void ForwardArgmax(Pass& pass, Tensor x, const ArgmaxLogits& out) const;

 private:
  WeightPtr weight_;
  OwnedTensor bias_;  // f32 [out_features()], or empty
};

}  // namespace tokamak::nn
