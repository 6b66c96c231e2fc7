// The steps that image processors share, and their fields in preprocessor_config.json.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json/json_reader.h"
#include "images/image.h"
#include "images/resize.h"
#include "tokamak/status.h"

namespace tokamak {

using Channels = std::array<double, 3>;
inline constexpr Channels kClipMean = {0.48145466, 0.4578275, 0.40821073};
inline constexpr Channels kClipStd = {0.26862954, 0.26130258, 0.27577711};
inline constexpr Channels kSiglipMean = {0.5, 0.5, 0.5};
inline constexpr Channels kSiglipStd = {0.5, 0.5, 0.5};

// The largest side that a configuration may name, in pixels.
inline constexpr int32_t kMaxSide = 1 << 12;

struct ImageSize {
  int32_t height = 0, width = 0;
};

// The field `size`: both sides, or the shorter one.
struct TargetSize {
  int32_t shortest_edge = 0;  // 0: `size` counts
  ImageSize size = {};

  ImageSize For(const Image& image) const;
};

// do_rescale and do_normalize. There are 256 possible values per channel.
class ValueTable {
 public:
  // The mean and standard deviation if the fields are absent.
  ValueTable(const JsonReader& reader, const Channels& mean, const Channels& std);

  float Value(int channel, uint8_t level) const { return values_[channel][level]; }
  // The level of the mean. Requires do_normalize.
  std::array<uint8_t, 3> mean_levels() const { return mean_levels_; }

 private:
  std::array<std::array<float, 256>, 3> values_ = {};
  std::array<uint8_t, 3> mean_levels_ = {};
};

Resampling ReadResampling(const JsonReader& reader, Resampling absent = Resampling::kBicubic);
TargetSize ReadTargetSize(const JsonReader& reader, const TargetSize& absent);
std::optional<ImageSize> ReadCropSize(const JsonReader& reader);
// Absent if do_center_crop is false, which it is by default if `absent` has no size.
std::optional<ImageSize> ReadCenterCrop(const JsonReader& reader, std::optional<ImageSize> absent);

// Resize with a limit on the result: an image of 1 x 16384 pixels, scaled until its shorter side
// fits, would fill the memory.
Result<Image> ResizeWithinLimit(const Image& image, ImageSize size, Resampling resampling);
// kInvalidArgument for an image that is not resized, unless `unit` divides its sides.
Status CheckMultiples(const Image& image, int32_t unit);
// Requires that the image has this part.
Image Crop(const Image& image, int32_t left, int32_t top, ImageSize size);
// Cuts the middle out, after surrounding a smaller image with black.
Image CenterCrop(const Image& image, ImageSize size);
// Puts the image at (left, top) of a larger one of this color.
Image Pad(const Image& image, ImageSize size, int32_t left, int32_t top,
          const std::array<uint8_t, 3>& color);
// Also has a limit on the result.
Result<Image> PadToSquare(const Image& image, const std::array<uint8_t, 3>& color);
// A square of an image. A still image is a video whose frames are equal.
struct PatchPlace {
  int32_t top = 0, left = 0, size = 0;
  int32_t frames = 1;
};
// Appends the values as [3, frames, size, size].
void AppendPatch(const Image& image, const PatchPlace& at, const ValueTable& table,
                 std::vector<float>& values);
// Appends the values as [3, height, width].
void AppendValues(const Image& image, const ValueTable& table, std::vector<float>& values);

}  // namespace tokamak
