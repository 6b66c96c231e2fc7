#include "nn/moe.h"

#include "base/error.h"

namespace tokamak::nn {

Moe::Moe(const Builder& b, const MoeShape& shape) : shape_(shape) {
  if (!b.ops().has_experts()) {
    b.Fail(Unimplemented("{}: the {} backend cannot run mixtures of experts", b.path(),
                         b.ops().name()));
    return;
  }
  const ParallelContext& parallel = b.parallel();
  if (!parallel.Divides(shape.intermediate_size) ||
      !parallel.Divides(shape.shared_intermediate_size)) {
    b.Fail(InvalidArgument("{}: experts of intermediate_size {} cannot be shared by {} ranks",
                           b.path(), shape.intermediate_size, parallel.size));
    return;
  }
  const int64_t hidden = shape.hidden_size, inner = shape.intermediate_size;
  const IndexRange mine = parallel.Share(inner);
  router_ = Linear::Router(b / "gate", shape.gate.num_experts, hidden);
  for (int64_t e = 0; e < shape.gate.num_experts && b.ok(); ++e) {
    const Builder expert = b / "experts" / e;
    const auto rows = [&](std::string_view name) {
      SourcePtr source = (expert / name / "weight").Find(Shape{inner, hidden});
      return source ? RowRange(std::move(source), mine) : nullptr;
    };
    const WeightPtr gate_up =
        expert.Prepare({rows("gate_proj"), rows("up_proj")}, WeightUse::kLinear);
    const WeightPtr down = Linear::RowWeight(expert / "down_proj", hidden, inner, mine);
    gate_up_.push_back(gate_up.get());
    down_.push_back(down.get());
    weights_.push_back(gate_up);
    weights_.push_back(down);
  }
  if (!b.ok()) return;
  int64_t bytes = 0;
  for (const WeightPtr& weight : weights_) bytes += weight->bytes();
  b.AddExperts(bytes, static_cast<double>(shape.gate.top_k) / shape.gate.num_experts);
  if (shape.shared_intermediate_size == 0) return;
  shared_ = Mlp(b / "shared_expert", {.hidden_size = hidden,
                                      .intermediate_size = shape.shared_intermediate_size,
                                      .activation = shape.activation});
  if (shape.shared_gate) shared_gate_ = Linear::Router(b / "shared_expert_gate", 1, hidden);
}

Tensor Moe::In(Pass& pass, DType type, Tensor x) {
  if (type == x.dtype) return x;
  Tensor out = pass.arena.Allocate(type, x.shape);
  pass.ops.Run(Convert{.x = x, .out = out}, pass.stream);
  return out;
}

void Moe::Forward(Pass& pass, Tensor x, Tensor out) const {
  const ArenaScope scope(pass.arena);
  Arena& arena = pass.arena;
  const ExpertGate& gate = shape_.gate;
  const int64_t num_tokens = x.rows(), num_rows = num_tokens * gate.top_k;
  const Shape pairs{num_tokens, gate.top_k};
  Tensor logits = arena.Allocate(DType::kF32, {num_tokens, gate.num_experts});
  router_.Forward(pass, x, logits);
  const RouteTokens route = {.logits = logits,
                             .bias = {},
                             .gate = gate,
                             .experts = arena.Allocate(DType::kI32, pairs),
                             .weights = arena.Allocate(DType::kF32, pairs),
                             .tokens = arena.Allocate(DType::kI32, {num_rows}),
                             .rows = arena.Allocate(DType::kI32, pairs),
                             .offsets = arena.Allocate(DType::kI32, {gate.num_experts + 1})};
  pass.ops.Run(route, pass.stream);

  const PackedWeight& gate_up = *gate_up_.front();
  const PackedWeight& down = *down_.front();
  const Tensor typed = In(pass, gate_up.activation(), x);
  Tensor grouped = arena.Allocate(typed.dtype, {num_rows, x.cols()});
  pass.ops.Run(GatherRows{.source = typed, .rows = route.tokens, .out = grouped}, pass.stream);
  Tensor both = arena.Allocate(DType::kF32, {num_rows, gate_up.rows()});
  pass.ops.Run(
      GroupedLinear{
          .x = grouped, .weights = gate_up_, .offsets = route.offsets, .bias = {}, .out = both},
      pass.stream);
  Tensor inner = arena.Allocate(down.activation(), {num_rows, down.cols()});
  pass.ops.Run(GatedActivation{.gate_up = both, .activation = shape_.activation, .out = inner},
               pass.stream);
  Tensor results = arena.Allocate(DType::kF32, {num_rows, down.rows()});
  pass.ops.Run(
      GroupedLinear{
          .x = inner, .weights = down_, .offsets = route.offsets, .bias = {}, .out = results},
      pass.stream);

  Tensor shared, shared_gate;
  if (shape_.shared_intermediate_size > 0) {
    shared = arena.Allocate(DType::kF32, out.shape);
    shared_.Forward(pass, In(pass, shared_.activation(), x), shared);
    if (shape_.shared_gate) {
      shared_gate = arena.Allocate(DType::kF32, {num_tokens, 1});
      shared_gate_.Forward(pass, x, shared_gate);
    }
  }
  pass.ops.Run(CombineExperts{.x = results,
                              .rows = route.rows,
                              .weights = route.weights,
                              .shared = shared,
                              .shared_gate = shared_gate,
                              .out = out},
               pass.stream);
}

}  // namespace tokamak::nn
