// SmolLM3: Llama with some layers that do not rotate queries and keys ("NoPE", arXiv:2501.18795).
// Reference: transformers, models/smollm3.
#include <vector>

#include "models/families.h"
#include "models/fields.h"

namespace tokamak {
namespace {

// Finds the layers that do not rotate. The list takes precedence over the interval.
void ParseNopeLayers(ConfigReader& reader, DecoderConfig& c) {
  const int32_t interval = reader.IntOr("no_rope_layer_interval", 4, Positive(10000));
  std::vector<int32_t> rotates(c.layers.size(), 1);
  for (size_t i = interval; i <= rotates.size(); i += interval) rotates[i - 1] = 0;
  if (reader.Has("no_rope_layers")) rotates = reader.Ints("no_rope_layers", {0, 1});
  if (rotates.size() < c.layers.size()) {
    return reader.Fail("no_rope_layers", "must have a value for each layer");
  }
  for (size_t i = 0; i < c.layers.size(); ++i) {
    if (rotates[i] == 0) c.layers[i].rope = DecoderLayer::kNoRope;
  }
}

}  // namespace

Result<DecoderConfig> ParseSmolLm3(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader, {.rope = {.theta = 2e6}, .tie_word_embeddings = true});
  c.mlp.bias = reader.BoolOr("mlp_bias", false);
  ParseNopeLayers(reader, c);
  const bool windows = reader.BoolOr("use_sliding_window", false);
  const int32_t window = reader.IntOr("sliding_window", 0);
  ParseSlidingLayers(reader, c, windows ? window : 0,
                     [&](int32_t i) { return c.layers[i].rope == DecoderLayer::kNoRope; });
  reader.Ignore({"max_window_layers", "pretraining_tp"});
  return reader.Finish(c);
}

}  // namespace tokamak
