// How images are prepared for a model.
#pragma once

#include <cstdint>
#include <optional>

namespace tokamak {

// For models that keep about an image's size (Qwen2-VL). Absent: as the model's files say.
struct ImageOptions {
  // Pixels after scaling: images with fewer are enlarged, those with more are made smaller. The
  // sides become multiples of what one token shows, so the number is only about right.
  std::optional<int32_t> min_pixels = {};
  std::optional<int32_t> max_pixels = {};

  bool empty() const { return !min_pixels && !max_pixels; }
};

}  // namespace tokamak
