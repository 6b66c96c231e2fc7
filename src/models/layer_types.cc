#include "models/layer_types.h"

#include <string>
#include <utility>

namespace tokamak {

std::vector<bool> ParseSlidingLayers(ConfigReader& reader, std::vector<bool> absent) {
  if (!reader.Has("layer_types")) return absent;
  const std::vector<std::string> types = reader.Strings("layer_types");
  if (types.size() != absent.size()) {
    reader.Fail("layer_types", "must name a type for each layer");
    return absent;
  }
  std::vector<bool> sliding(types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    sliding[i] = types[i] == "sliding_attention";
    if (!sliding[i] && types[i] != "full_attention") {
      reader.Fail("layer_types", "\"" + types[i] + "\" is not supported");
    }
  }
  return sliding;
}

std::vector<bool> AllButEvery(size_t interval, size_t num_layers) {
  std::vector<bool> result(num_layers);
  for (size_t i = 0; i < num_layers; ++i) result[i] = (i + 1) % interval != 0;
  return result;
}

void SetWindow(DecoderConfig& config, const std::vector<bool>& sliding, int32_t window) {
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].window = sliding[i] ? window : 0;
  }
}

}  // namespace tokamak
