#include "nn/gated_delta_net.h"

#include <fmt/core.h>

#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"

namespace tokamak::nn {
namespace {

std::string Meaning(const char* heads, int64_t num_heads, int64_t dim) {
  return fmt::format("{} {} × {}", heads, num_heads, dim);
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(const Builder& b, const GatedDeltaNetConfig& config) : Sublayer(b) {
  b.Needs({Capability::kGatedDelta, Capability::kGateOutput});
  const bool in_gguf = (b / "A").Has();
  tiled_ = in_gguf && config.num_value_heads > config.num_key_heads;
  if (tiled_ && b.parallel().size > 1) {
    b.Fail(Unimplemented(
        "{}: value heads in llama.cpp's order cannot be divided among {} ranks; 1 would work",
        b.path(), b.parallel().size));
    return;
  }
  const int64_t key_dim = config.key_dim, value_dim = config.value_dim;
  const int64_t keys = config.num_key_heads * key_dim, values = config.num_value_heads * value_dim;
  const int64_t block = (b / "out_proj" / "weight").BlockColumns(Shape{config.hidden_size, values});
  const std::vector<HeadShard> ranks =
      b.ShardHeads(config.num_value_heads, config.num_key_heads, value_dim, block);
  if (!b.ok()) return;
  const HeadShard heads = ranks[static_cast<size_t>(b.parallel().rank)];
  const auto columns = [](IndexRange range, int64_t dim, int64_t first) {
    return IndexRange{first + range.begin * dim, first + range.end * dim};
  };
  const Shard shard = {.heads = heads,
                       .q = columns(heads.kv_heads, key_dim, 0),
                       .k = columns(heads.kv_heads, key_dim, keys),
                       .v = columns(heads.heads, value_dim, 2 * keys),
                       .values = columns(heads.heads, value_dim, 0),
                       .gates = heads.heads};
  ReadInput(b, config, shard);
  ReadConvolution(b, config, shard);
  const auto read = [&](const char* name) {
    return b.ReadValues({b.Columns(
        (b / name).Find(Shape{config.num_value_heads}, "linear_num_value_heads"), heads.heads)});
  };
  std::vector<float> rate = read(in_gguf ? "A" : "A_log");
  for (float& value : rate) value = in_gguf ? -value : std::exp(value);
  rate_ = b.Store(rate, Shape{heads.heads.size()});
  bias_ = b.Store(read("dt_bias"), Shape{heads.heads.size()});
  norm_ = Norm(b / "norm", value_dim, {.eps = config.norm_eps});
  out_ = Linear::Row(b / "out_proj", config.hidden_size, values, shard.values, /*bias=*/false);
  spec_.num_heads = static_cast<int32_t>(heads.heads.size());
  spec_.key_dim = config.key_dim;
  spec_.value_dim = config.value_dim;
  layer_ = b.AddStateLayer(spec_);
}

void GatedDeltaNet::ReadInput(const Builder& b, const GatedDeltaNetConfig& config,
                              const Shard& shard) {
  const int64_t hidden = config.hidden_size, gates = config.num_value_heads;
  const int64_t keys = int64_t{config.num_key_heads} * config.key_dim;
  const int64_t values = int64_t{config.num_value_heads} * config.value_dim;
  const std::string z_meaning =
      Meaning("linear_num_value_heads", config.num_value_heads, config.value_dim);
  const std::string meaning =
      "2 × " + Meaning("linear_num_key_heads", config.num_key_heads, config.key_dim) + " + " +
      z_meaning;
  const auto find = [&](const char* name, int64_t rows, const std::string& of) {
    return (b / name / "weight").Find(Shape{rows, hidden}, of);
  };
  const SourcePtr qkv = find("in_proj_qkv", 2 * keys + values, meaning);
  const SourcePtr z = find("in_proj_z", values, z_meaning);
  const SourcePtr beta = find("in_proj_b", gates, "linear_num_value_heads");
  const SourcePtr a = find("in_proj_a", gates, "linear_num_value_heads");
  if (!b.ok()) return;
  // f32: the state accumulates what is rounded here.
  in_ = Linear(b.PackWeight(
      {RowRange(qkv, shard.q), RowRange(qkv, shard.k), RowRange(qkv, shard.v),
       RowRange(z, shard.values), RowRange(beta, shard.gates), RowRange(a, shard.gates)},
      WeightUse::kLinear));
}

// Stores the weight of [channels, 1, kernel] by kernel position.
void GatedDeltaNet::ReadConvolution(const Builder& b, const GatedDeltaNetConfig& config,
                                    const Shard& shard) {
  const int64_t channels = 2 * int64_t{config.num_key_heads} * config.key_dim +
                           int64_t{config.num_value_heads} * config.value_dim;
  const int64_t kernel = config.conv_kernel;
  const SourcePtr weight = (b / "conv1d" / "weight")
                               .FindEither(Shape{channels, kernel}, Shape{channels, 1, kernel},
                                           "linear_conv_kernel_dim");
  const std::vector<float> stored = b.ReadValues({weight});
  if (!b.ok()) return;
  std::vector<float> transposed;
  for (int64_t j = 0; j < kernel; ++j) {
    for (const IndexRange& range : {shard.q, shard.k, shard.v}) {
      for (int64_t c = range.begin; c < range.end; ++c) {
        transposed.push_back(stored[static_cast<size_t>(c * kernel + j)]);
      }
    }
  }
  spec_.conv_kernel = config.conv_kernel;
  spec_.conv_channels = static_cast<int32_t>(shard.q.size() + shard.k.size() + shard.v.size());
  conv_ = b.Store(transposed, Shape{kernel, spec_.conv_channels});
}

void GatedDeltaNet::ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const {
  const ArenaScope scope(pass.arena);
  const int64_t num_tokens = in.x.rows();
  const StateLayerView& state = pass.state_layers[static_cast<size_t>(layer_)];
  const int64_t values = int64_t{spec_.num_heads} * spec_.value_dim;
  const int64_t keys = (spec_.conv_channels - values) / 2;
  const auto take = [](const Tensor& from, int64_t& at, int64_t cols) {
    at += cols;
    return from.Cols(at - cols, at);
  };
  const Tensor mixed = pass.arena.Allocate(DType::kF32, {num_tokens, in_.out_features()});
  in_.Forward(pass, in.x, mixed);
  int64_t at = 0;
  const Tensor inputs = take(mixed, at, spec_.conv_channels);
  const Tensor z = take(mixed, at, values);
  const Tensor b = take(mixed, at, spec_.num_heads);
  const Tensor a = take(mixed, at, spec_.num_heads);

  const Tensor qkv = pass.arena.Allocate(DType::kF32, inputs.shape);
  pass.ops.Run(
      CausalConv{
          .x = inputs, .weight = conv_.tensor, .state = state, .batch = pass.states, .out = qkv},
      pass.stream);
  at = 0;
  const Tensor q = take(qkv, at, keys), k = take(qkv, at, keys), v = take(qkv, at, values);
  const Tensor heads = pass.arena.Allocate(DType::kF32, {num_tokens, values});
  pass.ops.Run(GatedDelta{.q = q,
                          .k = k,
                          .v = v,
                          .a = a,
                          .b = b,
                          .rate = rate_.tensor,
                          .bias = bias_.tensor,
                          .tiled = tiled_,
                          .state = state,
                          .batch = pass.states,
                          .out = heads},
               pass.stream);
  const Tensor gated = pass.arena.Allocate(out_.activation(), heads.shape);
  pass.ops.Run(GateOutput{.x = heads,
                          .gate = z,
                          .activation = OutputGate::kSilu,
                          .norm = &norm_.weight(),
                          .norm_eps = norm_.eps(),
                          .out = gated},
               pass.stream);
  out_.Forward(pass, gated, out);
}

}  // namespace tokamak::nn
