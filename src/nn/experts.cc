#include "nn/experts.h"

#include <utility>

#include "weights/reordered.h"

namespace tokamak::nn {
namespace {

// One kind of weight for all experts, [experts, ...], and access to one expert's [out, in].
struct Fused {
  SourcePtr all;
  int64_t stored_rows = 0;  // per expert
  bool transposed = false;

  SourcePtr Expert(const Builder& b, int64_t e) const {
    if (!all) return nullptr;
    const int64_t begin = e * stored_rows, end = begin + stored_rows;
    return transposed ? b.OrFail(Transposed(all, begin, end)) : RowRange(all, {begin, end});
  }
};

Fused FindFused(const Builder& b, const std::string& name, const ExpertsShape& shape, int64_t out,
                int64_t in, std::string_view meaning) {
  const int64_t experts = shape.num_experts;
  if (shape.storage == ExpertStorage::kFusedHalves) {
    const Shape saved{experts, out, in};
    SourcePtr all = (b / name).FindEither(saved, {experts, in, out}, meaning);
    const bool transposed = all && all->shape() != saved;
    return {std::move(all), transposed ? in : out, transposed};
  }
  const Builder blocks = b / (name + "_blocks");
  if (blocks.Has()) return {blocks.Find(Shape{experts, out, in}, meaning), out, false};
  return {(b / name).Find(Shape{experts, in, out}, meaning), in, true};
}

// Columns of a block of the experts' down projections.
int64_t BlockOfDown(const Builder& b, const ExpertsShape& shape) {
  const int64_t hidden = shape.hidden_size, inner = shape.intermediate_size;
  const Builder blocks = b / "down_proj_blocks";
  if (blocks.Has()) return blocks.BlockColumns(Shape{shape.num_experts, hidden, inner});
  if (shape.storage != ExpertStorage::kSeparate && (b / "down_proj").Has()) return 1;  // no blocks
  return (b / 0 / shape.down_proj / "weight").BlockColumns(Shape{hidden, inner});
}

}  // namespace

Experts::Experts(const Builder& b, const ExpertsShape& shape, double share) {
  const IndexRange shard =
      b.Shard(shape.intermediate_size, "intermediate_size", BlockOfDown(b, shape));
  const bool fused = shape.storage != ExpertStorage::kSeparate &&
                     ((b / "gate_up_proj").Has() || (b / "gate_up_proj_blocks").Has());
  if (fused) {
    ReadFused(b, shape, shard);
    if (shape.bias) ReadFusedBiases(b, shape, shard);
  } else {
    ReadSeparate(b, shape, shard);
    if (shape.bias) ReadSeparateBiases(b, shape, shard);
  }
  if (!b.ok()) return;
  // Parameters are those of all ranks, bytes those of this one.
  b.AddExperts(shape.num_experts * 3 * shape.hidden_size * shape.intermediate_size,
               gate_up_->bytes() + down_->bytes(), share);
}

void Experts::ReadSeparate(const Builder& b, const ExpertsShape& shape, IndexRange shard) {
  const int64_t hidden = shape.hidden_size, inner = shape.intermediate_size;
  std::vector<std::vector<SourcePtr>> gate_up, down;
  for (int64_t e = 0; e < shape.num_experts && b.ok(); ++e) {
    const auto rows = [&](std::string_view name) {
      SourcePtr source = (b / e / name / "weight").Find(Shape{inner, hidden});
      return source ? RowRange(std::move(source), shard) : nullptr;
    };
    gate_up.push_back({rows(shape.gate_proj), rows(shape.up_proj)});
    down.push_back(
        {b.Columns((b / e / shape.down_proj / "weight").Find(Shape{hidden, inner}), shard)});
  }
  gate_up_ = b.PackStack(std::move(gate_up), WeightUse::kInnerLinear);
  down_ = b.PackStack(std::move(down), WeightUse::kLinear);
}

void Experts::ReadSeparateBiases(const Builder& b, const ExpertsShape& shape, IndexRange shard) {
  const int64_t hidden = shape.hidden_size, inner = shape.intermediate_size;
  std::vector<float> gate_up, down;
  for (int64_t e = 0; e < shape.num_experts && b.ok(); ++e) {
    const auto append = [&](std::string_view name, int64_t size, IndexRange range,
                            std::vector<float>& to) {
      const Builder at = b / e / name / "bias";
      const std::vector<float> values = at.ReadValues({at.Find(Shape{size})});
      if (at.ok()) to.insert(to.end(), values.begin() + range.begin, values.begin() + range.end);
    };
    append(shape.gate_proj, inner, shard, gate_up);
    append(shape.up_proj, inner, shard, gate_up);
    append(shape.down_proj, hidden, {0, hidden}, down);
  }
  gate_up_bias_ = b.Store(gate_up, Shape{shape.num_experts, 2 * shard.size()});
  if (b.parallel().rank == 0) down_bias_ = b.Store(down, Shape{shape.num_experts, hidden});
}

void Experts::ReadFused(const Builder& b, const ExpertsShape& shape, IndexRange shard) {
  const int64_t hidden = shape.hidden_size, inner = shape.intermediate_size;
  const Fused gate_up = FindFused(b, "gate_up_proj", shape, 2 * inner, hidden,
                                  "experts, hidden size and twice the intermediate size");
  const Fused down =
      FindFused(b, "down_proj", shape, hidden, inner, "experts, intermediate size and hidden size");
  std::vector<std::vector<SourcePtr>> gate_up_parts, down_parts;
  for (int64_t e = 0; e < shape.num_experts; ++e) {
    const SourcePtr both = gate_up.Expert(b, e);
    SourcePtr columns = b.Columns(down.Expert(b, e), shard);
    if (!b.ok()) return;
    const bool halves = shape.storage == ExpertStorage::kFusedHalves;
    const SourcePtr gate = halves ? RowRange(both, {0, inner}) : EveryNthRow(both, 0, 2);
    const SourcePtr up = halves ? RowRange(both, {inner, 2 * inner}) : EveryNthRow(both, 1, 2);
    gate_up_parts.push_back({RowRange(gate, shard), RowRange(up, shard)});
    down_parts.push_back({std::move(columns)});
  }
  gate_up_ = b.PackStack(std::move(gate_up_parts), WeightUse::kInnerLinear);
  down_ = b.PackStack(std::move(down_parts), WeightUse::kLinear);
}

void Experts::ReadFusedBiases(const Builder& b, const ExpertsShape& shape, IndexRange shard) {
  const int64_t experts = shape.num_experts, inner = shape.intermediate_size;
  const auto read = [&](std::string_view name, int64_t size) {
    const Builder at = b / name;
    return at.ReadValues({at.Find(Shape{experts, size}, "experts × outputs")});
  };
  const std::vector<float> both = read("gate_up_proj_bias", 2 * inner);
  const std::vector<float> down = read("down_proj_bias", shape.hidden_size);
  if (!b.ok()) return;
  std::vector<float> gate_up;
  for (int64_t e = 0; e < experts; ++e) {
    for (const int64_t which : {0, 1}) {
      for (int64_t i = shard.begin; i < shard.end; ++i) {
        gate_up.push_back(both[static_cast<size_t>(2 * (e * inner + i) + which)]);
      }
    }
  }
  gate_up_bias_ = b.Store(gate_up, Shape{experts, 2 * shard.size()});
  if (b.parallel().rank == 0) down_bias_ = b.Store(down, Shape{experts, shape.hidden_size});
}

}  // namespace tokamak::nn
