// EXAONE 4.0: post-norms, and norms on the heads of queries and keys. In models with sliding
// windows, layers without a window do not rotate. Report: arXiv:2507.11407. Reference:
// transformers, models/exaone4.
#include <utility>
#include <vector>

#include "models/families.h"
#include "models/layer_types.h"

namespace tokamak {
namespace {

// The layers with a window. The reference only understands a number as the pattern; files with a
// pattern of letters also have "layer_types", which takes precedence.
std::vector<bool> ParseWindowLayers(ConfigReader& reader, size_t num_layers, bool windows) {
  std::vector<bool> sliding(num_layers);
  if (reader.Has("layer_types")) {
    reader.Ignore({"sliding_window_pattern"});
  } else if (windows) {
    const auto pattern =
        static_cast<size_t>(reader.IntOr("sliding_window_pattern", 4, Positive(10000)));
    sliding = AllButEvery(pattern, num_layers);
  }
  return ParseSlidingLayers(reader, std::move(sliding));
}

}  // namespace

Result<DecoderConfig> ParseExaone4(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader, {.attention_bias_is_fixed = true});
  c.layer = Olmo2Layer({.qk_norm = c.norm});
  // Null means no window; if the field is absent, the reference's default applies.
  const bool windows = !reader.IsNull("sliding_window");
  const auto window = static_cast<int32_t>(windows ? reader.IntOr("sliding_window", 4096) : 0);
  const std::vector<bool> sliding = ParseWindowLayers(reader, c.layers.size(), windows);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    if (windows && !sliding[i]) c.layers[i].rope = DecoderLayer::kNoRope;
    if (!windows && sliding[i]) {
      reader.Fail("layer_types", "names a layer with a window, but sliding_window is null");
    }
  }
  SetWindow(c, sliding, window);
  return reader.Finish(c);
}

}  // namespace tokamak
