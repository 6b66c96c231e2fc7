// Reads bytes as a preprocessor_config.json, after two bytes for the size of an image, which is
// then prepared: all values are finite, and as many as the shape says, also of its tiles.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/json/json_value.h"
#include "images/content_digest.h"
#include "images/processor.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tokamak;
  if (size < 2) return 0;
  Image image{1 + data[0] % 64, 1 + data[1] % 64};
  image.rgb.resize(size_t{3} * image.width * image.height, 200);
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::optional<JsonValue> config = JsonValue::Parse(text, {});
  if (!config) return 0;
  const auto processor = ReadImageProcessor(*config, "config");
  if (!processor.ok()) {
    if (processor.status().message().empty()) std::abort();
    return 0;
  }
  // Large sizes take long and prove nothing more.
  const auto is_large = [&](auto&& self, const JsonValue& value) -> bool {
    if (value.is_number()) return *value.AsNumber() > 128;
    if (const auto* list = value.AsArray()) {
      return std::any_of(list->begin(), list->end(),
                         [&](const JsonValue& item) { return self(self, item); });
    }
    const auto* members = value.AsObject();
    return members != nullptr && std::any_of(members->begin(), members->end(),
                                             [&](const auto& m) { return self(self, m.second); });
  };
  if (is_large(is_large, *config)) return 0;
  const Result<PreparedImage> prepared = (*processor)->Prepare(image);
  if (!prepared.ok()) {
    if (prepared.status().message().empty()) std::abort();
    return 0;
  }
  const auto check = [](const PreparedImage& part) {
    size_t values = 1;
    for (const int32_t side : part.shape) values *= static_cast<size_t>(side);
    if (values == 0 || values != part.values.size()) std::abort();
    if (!std::all_of(part.values.begin(), part.values.end(),
                     [](float value) { return std::isfinite(value); })) {
      std::abort();
    }
    (void)ContentDigestOf(part);
  };
  check(*prepared);
  for (const PreparedImage& tile : prepared->tiles) check(tile);
  return 0;
}
