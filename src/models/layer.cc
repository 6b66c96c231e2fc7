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
    Finish();
    pass_.ops.Run(Convert{.x = h_, .out = in.x}, pass_.stream);
    if (copy != in.x.dtype) pass_.ops.Run(Convert{.x = in.x, .out = in.copy}, pass_.stream);
  }
  delta_ = Tensor(memory_.data, sublayer.output(), memory_.shape);
  const Tensor out = after != nullptr ? pass_.arena.Allocate(delta_.dtype, delta_.shape) : delta_;
  sublayer.Forward(pass_, in, out);
  if (after != nullptr) after->Forward(pass_, out, delta_);
}

void Residual::Finish() {
  if (delta_.shape.rank() == 0) return;
  pass_.ops.Run(AddResidual{.x = delta_, .residual = h_}, pass_.stream);
  delta_ = {};
}

Tensor Residual::Rows(const Tensor& source, Tensor rows) const {
  Tensor wanted = pass_.arena.Allocate(source.dtype, {rows.cols(), source.cols()});
  pass_.ops.Run(GatherRows{.source = source, .rows = rows, .out = wanted}, pass_.stream);
  return wanted;
}

void Residual::Gather(Tensor rows, Tensor out) const {
  const auto wide = [&](const Tensor& x) { return SideBySide(x, out.cols()); };
  pass_.ops.Run(GatherRows{.source = wide(h_), .rows = rows, .out = out}, pass_.stream);
  if (delta_.shape.rank() == 0) return;
  const ArenaScope scope(pass_.arena);
  pass_.ops.Run(AddResidual{.x = Rows(wide(delta_), rows), .residual = out}, pass_.stream);
}

void Residual::AddRows(Tensor source, Tensor from, Tensor to, Tensor indices) const {
  const ArenaScope scope(pass_.arena);
  const int64_t count = from.cols();
  const Tensor sums = pass_.arena.Allocate(DType::kF32, h_.shape).Rows(0, count);
  const Tensor added = pass_.arena.Allocate(DType::kF32, h_.shape).Rows(0, count);
  if (count == 0) return;
  pass_.ops.Run(GatherRows{.source = h_, .rows = to, .out = sums}, pass_.stream);
  pass_.ops.Run(GatherRows{.source = source, .rows = from, .out = added}, pass_.stream);
  pass_.ops.Run(AddResidual{.x = added, .residual = sums}, pass_.stream);
  indices.shape = from.shape;
  pass_.ops.Run(CopyRows{.source = sums, .from = indices, .to = to, .out = h_}, pass_.stream);
}

void Residual::Normalize(const nn::Norm& norm, Tensor out) const {
  const auto as_wide = [&](const Tensor& x) {
    return x.shape.rank() == 0 ? x : Tensor(x.data, x.dtype, out.shape);
  };
  norm.AddForward(pass_, as_wide(delta_), as_wide(h_), out);
}

void Residual::Normalize(const nn::Norm& norm, Tensor rows, Tensor out) const {
  const Tensor delta = Rows(delta_, rows);
  norm.AddForward(pass_, delta, Rows(h_, rows), out);
}

}  // namespace tokamak
