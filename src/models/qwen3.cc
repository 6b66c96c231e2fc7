// Qwen3 and its mixture-of-experts models: Llama with norms on the heads of queries and keys.
// Report: arXiv:2505.09388. Reference: transformers, models/qwen3 and models/qwen3_moe.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/decoder.h"

namespace tokamak {
namespace {

// The window of layers that have one; 0 where none has.
int32_t ParseWindow(ConfigReader& reader) {
  const int64_t window = reader.IntOr("sliding_window", 4096);
  return reader.BoolOr("use_sliding_window", false) ? static_cast<int32_t>(window) : 0;
}

// "layer_types" says which layers see a window; absent, those from max_window_layers on do.
std::vector<bool> ParseSlidingLayers(ConfigReader& reader, size_t num_layers) {
  const int64_t first = reader.IntOr("max_window_layers", 28, NonNegative(10000));
  std::vector<bool> sliding(num_layers);
  for (size_t i = 0; i < num_layers; ++i) sliding[i] = static_cast<int64_t>(i) >= first;
  if (!reader.Has("layer_types")) return sliding;
  const std::vector<std::string> types = reader.Strings("layer_types");
  if (types.size() != num_layers) {
    reader.Fail("layer_types", "must name a type for each layer");
    return sliding;
  }
  for (size_t i = 0; i < num_layers; ++i) {
    sliding[i] = types[i] == "sliding_attention";
    if (!sliding[i] && types[i] != "full_attention") {
      reader.Fail("layer_types", "\"" + types[i] + "\" is not supported");
    }
  }
  return sliding;
}

DecoderConfig ParseCommon(ConfigReader& reader) {
  DecoderConfig c = ParseDecoder(reader);
  for (DecoderLayer& layer : c.layers) layer.attention.qk_norm_eps = c.rms_norm_eps;
  return c;
}

Result<DecoderConfig> ParseDense(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader);
  c.architecture = "Qwen3ForCausalLM";
  const int32_t window = ParseWindow(reader);
  const std::vector<bool> sliding = ParseSlidingLayers(reader, c.layers.size());
  for (size_t i = 0; i < c.layers.size(); ++i) {
    if (sliding[i]) c.layers[i].attention.window = window;
  }
  return reader.Finish(c);
}

Result<DecoderConfig> ParseMoe(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader);
  c.architecture = "Qwen3MoeForCausalLM";
  const int32_t window = ParseWindow(reader);
  for (DecoderLayer& layer : c.layers) layer.attention.window = window;  // all of them, or none
  reader.Ignore({"max_window_layers"});
  nn::MoeShape moe;
  moe.hidden_size = c.hidden_size;
  moe.intermediate_size = reader.Int("moe_intermediate_size");
  moe.activation = std::get<nn::MlpShape>(c.layers.front().feed_forward).activation;
  moe.gate.num_experts = static_cast<int32_t>(reader.Int("num_experts", Positive(1024)));
  moe.gate.top_k =
      static_cast<int32_t>(reader.Int("num_experts_per_tok", Positive(moe.gate.num_experts)));
  moe.gate.normalize = reader.BoolOr("norm_topk_prob", false);
  const int64_t step = reader.IntOr("decoder_sparse_step", 1);
  const std::vector<int64_t> dense = reader.Has("mlp_only_layers")
                                         ? reader.Ints("mlp_only_layers", NonNegative())
                                         : std::vector<int64_t>();
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    if (std::find(dense.begin(), dense.end(), index) == dense.end() && (index + 1) % step == 0) {
      c.layers[i].feed_forward = moe;
    }
  }
  reader.Ignore({"output_router_logits", "router_aux_loss_coef"});  // of training
  return reader.Finish(c);
}

}  // namespace

Result<std::unique_ptr<Model>> CreateQwen3(ConfigReader config, nn::WeightLoad& load,
                                           const LoadOptions& options) {
  ASSIGN_OR_RETURN(DecoderConfig c, ParseDense(std::move(config)));
  return MakeDecoder(std::move(c), load, options);
}

Result<std::unique_ptr<Model>> CreateQwen3Moe(ConfigReader config, nn::WeightLoad& load,
                                              const LoadOptions& options) {
  ASSIGN_OR_RETURN(DecoderConfig c, ParseMoe(std::move(config)));
  return MakeDecoder(std::move(c), load, options);
}

}  // namespace tokamak
