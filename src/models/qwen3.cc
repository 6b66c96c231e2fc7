// Qwen3 and its MoE models: Llama with norms on the heads of queries and keys. Report:
// arXiv:2505.09388. Reference: transformers, models/qwen3 and models/qwen3_moe.
#include <vector>

#include "models/families.h"
#include "models/layer_types.h"
#include "models/qwen_config.h"

namespace tokamak {
namespace {

DecoderConfig ParseCommon(ConfigReader& reader) {
  DecoderConfig c = ParseDecoder(reader);
  c.layer = LlamaLayer({.qk_norm = c.norm});
  return c;
}

}  // namespace

Result<DecoderConfig> ParseQwen3(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader);
  const int32_t window = ParseQwenWindow(reader);
  SetWindow(c, ParseQwenSlidingLayers(reader, c.layers.size()), window);
  return reader.Finish(c);
}

Result<DecoderConfig> ParseQwen3Moe(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader);
  const int32_t window = ParseQwenWindow(reader);
  for (DecoderLayer& layer : c.layers) layer.window = window;  // all layers, or none
  reader.Ignore({"max_window_layers"});
  ParseQwenExperts(reader, c);
  return reader.Finish(c);
}

}  // namespace tokamak
