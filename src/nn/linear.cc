#include "nn/linear.h"

#include <utility>

#include "base/error.h"

namespace tokamak::nn {
namespace {

// Returns columns `range` of the source; null with the error recorded in `b`.
SourcePtr Columns(const Builder& b, SourcePtr source, IndexRange range) {
  if (!source) return nullptr;
  Result<SourcePtr> columns = ColumnRange(std::move(source), range);
  if (columns.ok()) return *std::move(columns);
  b.Fail(columns.status());
  return nullptr;
}

// A bias is added in f32, so the outputs of a layer with a bias are f32.
WeightUse UseOf(bool bias) { return bias ? WeightUse::kLinear : WeightUse::kInnerLinear; }

}  // namespace

Linear Linear::Column(const Builder& b, const std::vector<Output>& outputs, int64_t in, bool bias) {
  std::vector<SourcePtr> weights;
  std::vector<SourcePtr> biases;
  for (const Output& output : outputs) {
    const Builder at = b / output.name;
    SourcePtr weight = (at / "weight").Find(Shape{output.rows, in}, output.meaning);
    if (weight) weights.push_back(RowRange(std::move(weight), output.range));
    if (bias)
      biases.push_back(
          Columns(at, (at / "bias").Find(Shape{output.rows}, output.meaning), output.range));
  }
  Linear layer(b.PackWeight(std::move(weights), UseOf(bias)));
  if (bias) layer.bias_ = b.ReadVectors(biases);
  return layer;
}

Linear Linear::MergedColumn(const Builder& b, const std::vector<Output>& outputs, int64_t in,
                            bool bias) {
  int64_t rows = 0;
  std::string meaning;
  for (const Output& output : outputs) {
    rows += output.rows;
    meaning += (meaning.empty() ? "" : " + ") + output.meaning;
  }
  SourcePtr weight = (b / "weight").Find(Shape{rows, in}, meaning);
  SourcePtr stored_bias = bias ? (b / "bias").Find(Shape{rows}, meaning) : nullptr;
  if (!b.ok()) return {};
  std::vector<SourcePtr> weights;
  std::vector<SourcePtr> biases;
  int64_t first = 0;
  for (const Output& output : outputs) {
    const IndexRange shard{first + output.range.begin, first + output.range.end};
    weights.push_back(RowRange(weight, shard));
    if (bias) biases.push_back(Columns(b, stored_bias, shard));
    first += output.rows;
  }
  Linear layer(b.PackWeight(std::move(weights), UseOf(bias)));
  if (bias) layer.bias_ = b.ReadVectors(biases);
  return layer;
}

Linear Linear::Row(const Builder& b, int64_t out, int64_t in, IndexRange range, bool bias) {
  SourcePtr weight = Columns(b, (b / "weight").Find(Shape{out, in}), range);
  Linear layer(b.PackWeight({std::move(weight)}, UseOf(bias)));
  if (bias) {
    SourcePtr source = (b / "bias").Find(Shape{out});
    if (b.parallel().rank == 0) layer.bias_ = b.ReadVectors({std::move(source)});
  }
  return layer;
}

Linear Linear::Replicated(const Builder& b, int64_t out, int64_t in, bool bias) {
  Linear layer(b.PackWeight({(b / "weight").Find(Shape{out, in})}, WeightUse::kLinear));
  if (bias) layer.bias_ = (b / "bias").ReadVector(out);
  return layer;
}

Linear Linear::Router(const Builder& b, int64_t out, int64_t in, bool bias) {
  Linear layer(b.PackWeight({(b / "weight").Find(Shape{out, in})}, WeightUse::kRouter));
  if (bias) layer.bias_ = (b / "bias").ReadVector(out);
  return layer;
}

void Linear::Forward(Pass& pass, Tensor x, Tensor out) const {
  pass.ops.Run(Operation(x, out), pass.stream);
}

void Linear::ForwardArgmax(Pass& pass, Tensor x, const ArgmaxLogits& out) const {
  pass.ops.Run(LinearArgmax{.x = x, .weight = weight_.get(), .bias = bias_.tensor, .out = out},
               pass.stream);
}

}  // namespace tokamak::nn
