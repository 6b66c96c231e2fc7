#include "models/layer.h"

namespace tokamak {

void Residual::Add(const nn::Norm* before, const nn::Sublayer& sublayer, const nn::Norm* after) {
  const ArenaScope scope(pass_.arena);
  nn::SublayerInput in = {pass_.arena.Allocate(sublayer.activation(), h_.shape)};
  const DType copy = sublayer.copy_type();
  if (copy != in.x.dtype) in.copy = pass_.arena.Allocate(copy, h_.shape);
  if (before != nullptr) {
    before->AddForward(pass_, delta_, h_, in.x, in.copy);
  } else {
    if (delta_.shape.rank() != 0) {
      pass_.ops.Run(AddResidual{.x = delta_, .residual = h_}, pass_.stream);
    }
    pass_.ops.Run(Convert{.x = h_, .out = in.x}, pass_.stream);
    if (copy != in.x.dtype) pass_.ops.Run(Convert{.x = in.x, .out = in.copy}, pass_.stream);
  }
  delta_ = Tensor(memory_.data, sublayer.output(), memory_.shape);
  const Tensor out = after != nullptr ? pass_.arena.Allocate(delta_.dtype, delta_.shape) : delta_;
  sublayer.Forward(pass_, in, out);
  if (after != nullptr) after->Forward(pass_, out, delta_);
}

void Residual::Normalize(const nn::Norm& norm, Tensor rows, Tensor out) const {
  const auto gather = [&](const Tensor& source) {
    Tensor wanted = pass_.arena.Allocate(source.dtype, {rows.cols(), source.cols()});
    pass_.ops.Run(GatherRows{.source = source, .rows = rows, .out = wanted}, pass_.stream);
    return wanted;
  };
  const Tensor delta = gather(delta_);
  norm.AddForward(pass_, delta, gather(h_), out);
}

}  // namespace tokamak
