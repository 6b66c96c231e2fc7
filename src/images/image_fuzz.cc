// Decodes bytes as an image, within limits that keep a run short.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "images/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tokamak;
  const DecodeLimits limits{.max_bytes = 1 << 16, .max_side = 2048, .max_pixels = 1 << 18};
  const auto image = DecodeImage({reinterpret_cast<const char*>(data), size}, limits);
  if (!image.ok()) {
    if (image.status().message().empty()) std::abort();
    return 0;
  }
  const auto width = static_cast<size_t>(image->width), height = static_cast<size_t>(image->height);
  if (width == 0 || height == 0 || width > 2048 || height > 2048) std::abort();
  if (width * height > size_t{1} << 18 || image->rgb.size() != 3 * width * height) std::abort();
  return 0;
}
