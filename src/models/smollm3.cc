// SmolLM3: Llama with some layers that do not rotate queries and keys ("NoPE", arXiv:2501.18795).
// Reference: transformers, models/smollm3.
#include <utility>
#include <vector>

#include "models/families.h"
#include "models/layer_types.h"

namespace tokamak {
namespace {

// The layers that rotate. The list takes precedence over the interval.
std::vector<bool> ParseRotatingLayers(ConfigReader& reader, size_t num_layers) {
  const auto interval =
      static_cast<size_t>(reader.IntOr("no_rope_layer_interval", 4, Positive(10000)));
  std::vector<bool> rotates = AllButEvery(interval, num_layers);
  if (!reader.Has("no_rope_layers")) return rotates;
  const std::vector<int32_t> list = reader.Ints("no_rope_layers", {0, 1});
  if (list.size() < num_layers) {
    reader.Fail("no_rope_layers", "must have a value for each layer");
    return rotates;
  }
  for (size_t i = 0; i < num_layers; ++i) rotates[i] = list[i] == 1;
  return rotates;
}

}  // namespace

Result<DecoderConfig> ParseSmolLm3(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader, {.rope = {.theta = 2e6}, .tie_word_embeddings = true});
  c.mlp.bias = reader.BoolOr("mlp_bias", false);
  std::vector<bool> sliding = ParseRotatingLayers(reader, c.layers.size());
  for (size_t i = 0; i < c.layers.size(); ++i) {
    if (!sliding[i]) c.layers[i].rope = DecoderLayer::kNoRope;
  }
  sliding.flip();  // default for "layer_types": layers that do not rotate
  const bool windows = reader.BoolOr("use_sliding_window", false);
  const int64_t window = reader.Has("sliding_window") ? reader.Int("sliding_window") : 0;
  SetWindow(c, ParseSlidingLayers(reader, std::move(sliding)),
            windows ? static_cast<int32_t>(window) : 0);
  reader.Ignore({"max_window_layers", "pretraining_tp"});
  return reader.Finish(c);
}

}  // namespace tokamak
