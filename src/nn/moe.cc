#include "nn/moe.h"

namespace tokamak::nn {

Moe::Moe(const Builder& b, const MoeShape& shape) : Sublayer(b), shape_(shape) {
  b.Needs({Capability::kMoe, Capability::kCombine, Capability::kConvert});
  b.Needs(NeedsOf(shape.activation));
  moe_layer_ = b.AddMoeLayer(shape.router.num_experts);
  const int64_t hidden = shape.hidden_size;
  const MoeNames& names = shape.names;
  router_ = Linear::Router(b / names.router, shape.router.num_experts, hidden, shape.router_bias);
  if (shape.score_correction_bias) {
    score_correction_bias_ =
        (b / names.router / "e_score_correction_bias").ReadVector(shape.router.num_experts);
  }
  if (b.uniform_routing()) {
    shape_.router.score = RouterConfig::Score::kUniform;
    shape_.router.num_groups = shape_.router.top_groups = 1;
    score_correction_bias_ = {};
  }
  experts_ = Experts(b / "experts",
                     {.num_experts = shape.router.num_experts,
                      .hidden_size = hidden,
                      .intermediate_size = shape.intermediate_size,
                      .bias = shape.expert_bias,
                      .storage = shape.storage,
                      .gate_proj = names.gate_proj,
                      .up_proj = names.up_proj,
                      .down_proj = names.down_proj},
                     static_cast<double>(shape.router.top_k) / shape.router.num_experts);
  if (!b.ok()) return;
  if (shape.shared_intermediate_size == 0) return;
  shared_ = Mlp(b / names.shared, {.hidden_size = hidden,
                                   .intermediate_size = shape.shared_intermediate_size,
                                   .activation = shape.activation});
  if (shape.shared_gate) shared_gate_ = Linear::Router(b / "shared_expert_gate", 1, hidden);
}

void Moe::ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const {
  const ArenaScope scope(pass.arena);
  Arena& arena = pass.arena;
  const RouterConfig& router = shape_.router;
  const Tensor x = in.x, rounded = in.copy.shape.rank() != 0 ? in.copy : in.x;
  const int64_t num_tokens = x.rows(), num_rows = num_tokens * router.top_k;
  const Shape pairs{num_tokens, router.top_k};
  Tensor logits = arena.Allocate(DType::kF32, {num_tokens, router.num_experts});
  router_.Forward(pass, x, logits);
  const Shape ends{router.num_experts + 1};
  const RouteTokens route = {
      .logits = logits,
      .bias = score_correction_bias_.tensor,
      .router = router,
      .experts = arena.Allocate(DType::kI32, pairs),
      .weights = arena.Allocate(DType::kF32, pairs),
      .tokens = arena.Allocate(DType::kI32, {num_rows}),
      .rows = arena.Allocate(DType::kI32, pairs),
      .offsets = pass.expert_offsets.empty()
                     ? arena.Allocate(DType::kI32, ends)
                     : Tensor(pass.expert_offsets.RowData(moe_layer_), DType::kI32, ends)};
  pass.ops.Run(route, pass.stream);

  const PackedStack& gate_up = experts_.gate_up();
  const PackedStack& down = experts_.down();
  Tensor grouped = arena.Allocate(rounded.dtype, {num_rows, x.cols()});
  Tensor both = arena.Allocate(gate_up.output(), {num_rows, gate_up.rows()});
  Tensor inner = arena.Allocate(down.activation(), {num_rows, down.cols()});
  pass.ops.Run(GateUpExperts{.gather = {.source = rounded, .rows = route.tokens, .out = grouped},
                             .rows = route.rows,
                             .linear = {.x = grouped,
                                        .weights = &gate_up,
                                        .offsets = route.offsets,
                                        .bias = experts_.gate_up_bias(),
                                        .out = both},
                             .gate = {.gate_up = both,
                                      .activation = shape_.activation,
                                      .out = inner,
                                      .limit = shape_.swiglu_limit,
                                      .alpha = shape_.swiglu_alpha}},
               pass.stream);
  Tensor results = arena.Allocate(down.output(), {num_rows, down.rows()});
  pass.ops.Run(GroupedLinear{.x = inner,
                             .weights = &down,
                             .offsets = route.offsets,
                             .bias = experts_.down_bias(),
                             .out = results},
               pass.stream);

  Tensor shared, shared_gate;
  if (shape_.shared_intermediate_size > 0) {
    shared = arena.Allocate(shared_.output(), out.shape);
    Tensor shared_x = shared_.activation() == rounded.dtype ? rounded : x;
    if (shared_x.dtype != shared_.activation()) {
      shared_x = arena.Allocate(shared_.activation(), x.shape);
      pass.ops.Run(Convert{.x = x, .out = shared_x}, pass.stream);
    }
    shared_.ForwardShard(pass, {shared_x}, shared);
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
