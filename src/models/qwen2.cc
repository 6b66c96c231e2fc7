// Qwen2, Qwen2.5 and the MoE models of Qwen1.5 and Qwen2: Llama with biases on queries, keys and
// values. Report: arXiv:2407.10671. Reference: transformers, models/qwen2 and models/qwen2_moe.
#include <utility>
#include <vector>

#include "models/families.h"
#include "models/layer_types.h"
#include "models/qwen_config.h"

namespace tokamak {
namespace {

DecoderConfig ParseCommon(ConfigReader& reader, bool qkv_bias) {
  DecoderConfig c =
      ParseDecoder(reader, {.attention_bias = qkv_bias, .attention_bias_is_fixed = true});
  c.attention.output_bias = false;
  return c;
}

}  // namespace

Result<DecoderConfig> ParseQwen2(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader, true);
  const int32_t window = ParseQwenWindow(reader);
  SetWindow(c, ParseQwenSlidingLayers(reader, c.layers.size()), window);
  return reader.Finish(c);
}

Result<DecoderConfig> ParseQwen2Moe(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader, reader.BoolOr("qkv_bias", true));
  const int32_t window = ParseQwenWindow(reader);
  // Default for "layer_types": every second one of the first max_window_layers layers.
  const int64_t end = reader.IntOr("max_window_layers", 28, NonNegative(10000));
  std::vector<bool> sliding(c.layers.size());
  for (size_t i = 0; i < sliding.size(); ++i) {
    sliding[i] = i % 2 == 0 && static_cast<int64_t>(i) < end;
  }
  SetWindow(c, ParseSlidingLayers(reader, std::move(sliding)), window);
  c.moe.shared_intermediate_size =
      reader.Int("shared_expert_intermediate_size", kIntermediateSizes);
  c.moe.shared_gate = true;
  ParseQwenExperts(reader, c);
  return reader.Finish(c);
}

}  // namespace tokamak
