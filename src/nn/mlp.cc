#include "nn/mlp.h"

#include <vector>

namespace tokamak::nn {
namespace {

// This rank's inner activations. `down` is the weight that reads them.
IndexRange InnerShard(const Builder& b, const MlpShape& shape, std::string_view down) {
  const Shape stored{shape.hidden_size, shape.intermediate_size};
  return b.Shard(shape.intermediate_size, "intermediate_size",
                 (b / down / "weight").BlockColumns(stored));
}

}  // namespace

Mlp::Mlp(const Builder& b, const MlpShape& shape) : Sublayer(b), activation_(shape.activation) {
  b.Needs(NeedsOf(shape.activation));
  const IndexRange shard = InnerShard(b, shape, "down_proj");
  const std::vector<Linear::Output> outputs = {
      {"gate_proj", shape.intermediate_size, shard, "intermediate_size"},
      {"up_proj", shape.intermediate_size, shard, "intermediate_size"}};
  gate_up_ = shape.merged
                 ? Linear::MergedColumn(b / "gate_up_proj", outputs, shape.hidden_size, shape.bias)
                 : Linear::Column(b, outputs, shape.hidden_size, shape.bias);
  down_ =
      Linear::Row(b / "down_proj", shape.hidden_size, shape.intermediate_size, shard, shape.bias);
}

void Mlp::ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const {
  const ArenaScope scope(pass.arena);
  const int64_t num_tokens = in.x.rows();
  Tensor gate_up = pass.arena.Allocate(gate_up_.output(), {num_tokens, gate_up_.out_features()});
  Tensor inner = pass.arena.Allocate(down_.activation(), {num_tokens, down_.in_features()});
  pass.ops.Run(GateUp{.linear = gate_up_.Operation(in.x, gate_up),
                      .gate = {.gate_up = gate_up, .activation = activation_, .out = inner}},
               pass.stream);
  down_.Forward(pass, inner, out);
}

PlainMlp::PlainMlp(const Builder& b, const MlpShape& shape, const PlainMlpNames& names)
    : Sublayer(b), activation_(shape.activation) {
  b.Needs(Capability::kActivate);
  b.Needs(NeedsOf(shape.activation));
  const IndexRange shard = InnerShard(b, shape, names.down);
  up_ = Linear::Column(b, {{names.up, shape.intermediate_size, shard, "intermediate size"}},
                       shape.hidden_size, shape.bias);
  down_ =
      Linear::Row(b / names.down, shape.hidden_size, shape.intermediate_size, shard, shape.bias);
}

void PlainMlp::ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const {
  const ArenaScope scope(pass.arena);
  Tensor up = pass.arena.Allocate(up_.output(), {in.x.rows(), up_.out_features()});
  up_.Forward(pass, in.x, up);
  Tensor inner = pass.arena.Allocate(down_.activation(), {in.x.rows(), down_.in_features()});
  pass.ops.Run(Activate{.x = up, .activation = activation_, .out = inner}, pass.stream);
  down_.Forward(pass, inner, out);
}

}  // namespace tokamak::nn
