// A part of a layer that changes the residual stream: attention or a feed-forward
// (arXiv:1706.03762, section 3.1).
#pragma once

#include "nn/builder.h"
#include "nn/pass.h"

namespace tokamak::nn {

// [T, hidden_size] each.
struct SublayerInput {
  Tensor x;          // of Sublayer::activation()
  Tensor copy = {};  // x in Sublayer::copy_type(), if that is another type
};

// Immutable. Divided among the ranks of the builder that made it.
class Sublayer {
 public:
  virtual ~Sublayer() = default;

  virtual DType activation() const = 0;
  virtual DType copy_type() const { return activation(); }
  virtual DType output() const = 0;  // the type of out; f32 if there are several ranks

  // out: [T, hidden_size], the sum of what all ranks compute.
  void Forward(Pass& pass, const SublayerInput& in, Tensor out) const {
    ForwardShard(pass, in, out);
    if (is_divided_) pass.ops.Run(AllReduce{.x = out}, pass.stream);
  }
  // This rank's part of that sum.
  virtual void ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const = 0;

 protected:
  Sublayer() = default;
  explicit Sublayer(const Builder& b) : is_divided_(b.parallel().size > 1) {}

 private:
  bool is_divided_ = false;
};

}  // namespace tokamak::nn
