#include "nn/linear.h"

#include <utility>

#include "base/error.h"

namespace tokamak::nn {
namespace {

// A bias is added in f32, so the outputs of a layer with a bias are f32.
WeightUse UseOf(bool bias) { return bias ? WeightUse::kLinear : WeightUse::kInnerLinear; }

Linear Pack(const Builder& b, std::vector<SourcePtr> weights, WeightUse use, bool bias,
            const std::vector<SourcePtr>& biases) {
  WeightPtr weight = b.PackWeight(std::move(weights), use);
  return Linear(std::move(weight), bias ? b.ReadVectors(biases) : OwnedTensor());
}

Linear Whole(const Builder& b, int64_t out, int64_t in, bool bias, WeightUse use) {
  SourcePtr weight = (b / "weight").Find(Shape{out, in});
  return Pack(b, {std::move(weight)}, use, bias, {bias ? (b / "bias").Find(Shape{out}) : nullptr});
}

}  // namespace

Linear Linear::Column(const Builder& b, const std::vector<Output>& outputs, int64_t in, bool bias) {
  std::vector<SourcePtr> weights;
  std::vector<SourcePtr> biases;
  for (const Output& output : outputs) {
    const Builder at = b / output.name;
    SourcePtr weight = (at / "weight").Find(Shape{output.rows, in}, output.meaning);
    std::vector<IndexRange> ranges = {output.range};
    if (weight && !output.runs.empty()) {
      ranges.clear();
      for (const RowRun& run : output.runs) ranges.push_back({run.begin, run.end});
      weights.push_back(PickRows(std::move(weight), output.runs));
    } else if (weight) {
      weights.push_back(RowRange(std::move(weight), output.range));
    }
    if (!bias) continue;
    const SourcePtr stored = (at / "bias").Find(Shape{output.rows}, output.meaning);
    for (const IndexRange& range : ranges) biases.push_back(b.Columns(stored, range));
  }
  return Pack(b, std::move(weights), UseOf(bias), bias, biases);
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
    if (bias) biases.push_back(b.Columns(stored_bias, shard));
    first += output.rows;
  }
  return Pack(b, std::move(weights), UseOf(bias), bias, biases);
}

Linear Linear::Row(const Builder& b, int64_t out, int64_t in, IndexRange range, bool bias) {
  SourcePtr weight = b.Columns((b / "weight").Find(Shape{out, in}), range);
  SourcePtr stored = bias ? (b / "bias").Find(Shape{out}) : nullptr;
  return Pack(b, {std::move(weight)}, UseOf(bias || b.parallel().size > 1),
              bias && b.parallel().rank == 0, {std::move(stored)});
}

Linear Linear::Replicated(const Builder& b, int64_t out, int64_t in, bool bias) {
  return Whole(b, out, in, bias, WeightUse::kLinear);
}

Linear Linear::Router(const Builder& b, int64_t out, int64_t in, bool bias) {
  return Whole(b, out, in, bias, WeightUse::kRouter);
}

void Linear::Forward(Pass& pass, Tensor x, Tensor out) const {
  pass.ops.Run(Operation(x, out), pass.stream);
}

void Linear::ForwardArgmax(Pass& pass, Tensor x, const ArgmaxLogits& out) const {
  pass.ops.Run(LinearArgmax{.x = x, .weight = weight_.get(), .bias = bias_.tensor, .out = out},
               pass.stream);
}

}  // namespace tokamak::nn
