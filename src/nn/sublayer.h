// A part of a layer that changes the residual stream: attention or a feed-forward
// (arXiv:1706.03762, section 3.1).
#pragma once

#include "nn/pass.h"

namespace tokamak::nn {

// [T, hidden_size] each.
struct SublayerInput {
  Tensor x;          // of Sublayer::activation()
  Tensor copy = {};  // x in Sublayer::copy_type(), if that is another type
};

// Immutable.
class Sublayer {
 public:
  virtual ~Sublayer() = default;

  virtual DType activation() const = 0;
  virtual DType copy_type() const { return activation(); }
  virtual DType output() const = 0;  // the type of out

  // out: [T, hidden_size].
  virtual void Forward(Pass& pass, const SublayerInput& in, Tensor out) const = 0;
};

}  // namespace tokamak::nn
