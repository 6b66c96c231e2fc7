// EXAONE 4.0: post-norms, and norms on the heads of queries and keys. In models with sliding
// windows, layers without a window do not rotate. Report: arXiv:2507.11407. Reference:
// transformers, models/exaone4.
#include <vector>

#include "models/families.h"
#include "models/fields.h"

namespace tokamak {

Result<DecoderConfig> ParseExaone4(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader, {.attention_bias_is_fixed = true});
  c.layer = Olmo2Layer({.qk_norm = c.norm});
  const int32_t window = ParseWindow(reader, 4096);
  int32_t pattern = 1;
  if (reader.Has("layer_types")) {
    // The reference only understands a number; files with a pattern of letters also have the list.
    reader.Ignore({"sliding_window_pattern"});
  } else if (window > 0) {
    pattern = reader.IntOr("sliding_window_pattern", 4, Positive(10000));
  }
  const std::vector<bool> sliding =
      ParseSlidingLayers(reader, c, window, [=](int32_t i) { return (i + 1) % pattern != 0; });
  for (size_t i = 0; i < c.layers.size(); ++i) {
    if (window > 0 && !sliding[i]) c.layers[i].rope = DecoderLayer::kNoRope;
    if (window == 0 && sliding[i]) {
      reader.Fail("layer_types", "names a layer with a window, but sliding_window is null");
    }
  }
  return reader.Finish(c);
}

}  // namespace tokamak
