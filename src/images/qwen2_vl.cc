// Wang et al., "Qwen2-VL", arXiv:2409.12191, section 2.1: patches of an image of about its own
// size, in an order in which each merge_size x merge_size square, which becomes one token, is
// contiguous. Also GLM-4.1V, arXiv:2507.01006. References: transformers, models/qwen2_vl and
// models/glm4v.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/error.h"
#include "images/processors.h"

namespace tokamak {
namespace {

// A limit: `edge` of the size, or for Qwen2-VL also a field of its own.
int32_t ReadPixels(const JsonReader& reader, const char* name, std::string_view edge,
                   int32_t absent) {
  const JsonReader size = reader["size"];
  const int32_t in_size = size.present() ? size.Int(edge) : absent;
  return name != nullptr ? reader.IntOr(name, in_size) : in_size;
}

}  // namespace

Qwen2VlProcessor::Qwen2VlProcessor(const JsonReader& reader, int32_t max_patches, bool glm)
    : glm_(glm),
      resize_(reader.BoolOr("do_resize", true)),
      min_pixels_(ReadPixels(reader, glm ? nullptr : "min_pixels", "shortest_edge",
                             glm ? 112 * 112 : 56 * 56)),
      max_pixels_(ReadPixels(reader, glm ? nullptr : "max_pixels", "longest_edge",
                             28 * 28 * (glm ? 15000 : 1280))),
      patch_size_(reader.IntOr("patch_size", 14, Positive(1 << 10))),
      temporal_patch_size_(reader.IntOr("temporal_patch_size", 2, Positive(16))),
      merge_size_(reader.IntOr("merge_size", 2, Positive(16))),
      resampling_(ReadResampling(reader)),
      table_(reader, kClipMean, kClipStd) {
  const int64_t most = int64_t{max_patches} * frames() * patch_size_ * patch_size_;
  max_pixels_ = static_cast<int32_t>(std::min<int64_t>(max_pixels_, most));
  min_pixels_ = std::min(min_pixels_, max_pixels_);
  if (reader["size"].present()) reader["size"].Only({"shortest_edge", "longest_edge"});
  // transformers reads these for other processors alone.
  for (const std::string_view name :
       {"crop_size", "default_to_square", "do_center_crop", "do_pad", "pad_size"}) {
    (void)reader.Has(name);
  }
}

ImageSize Qwen2VlProcessor::AtLeastAPatch(const Image& image) const {
  const double height = image.height, width = image.width, factor = patch_size_ * merge_size_;
  if (!glm_ || std::min(height, width) >= factor) return {image.height, image.width};
  const double scale = std::max(factor / height, factor / width);
  return {static_cast<int32_t>(height * scale), static_cast<int32_t>(width * scale)};
}

// smart_resize of the reference: multiples of a merged patch, a number of pixels within the limits,
// about the same aspect ratio.
ImageSize Qwen2VlProcessor::SizeFor(const ImageSize& from, const ImageOptions& options) const {
  const int32_t min_pixels = options.min_pixels.value_or(min_pixels_);
  const int32_t max_pixels = options.max_pixels.value_or(max_pixels_);
  const double height = from.height, width = from.width, factor = patch_size_ * merge_size_;
  const double pixels = frames() * height * width;
  // Rounds halves to even, as Python does.
  double to_height = std::nearbyint(height / factor) * factor;
  double to_width = std::nearbyint(width / factor) * factor;
  if (frames() * to_height * to_width > max_pixels) {
    const double beta = std::sqrt(pixels / max_pixels);
    to_height = std::max(factor, std::floor(height / beta / factor) * factor);
    to_width = std::max(factor, std::floor(width / beta / factor) * factor);
  } else if (frames() * to_height * to_width < min_pixels) {
    const double beta = std::sqrt(min_pixels / pixels);
    to_height = std::ceil(height * beta / factor) * factor;
    to_width = std::ceil(width * beta / factor) * factor;
  }
  return {static_cast<int32_t>(to_height), static_cast<int32_t>(to_width)};
}

ImageOptions Qwen2VlProcessor::options() const {
  if (!resize_) return {};
  return {.min_pixels = min_pixels_, .max_pixels = max_pixels_};
}

Result<PreparedImage> Qwen2VlProcessor::PrepareWith(const ImageOptions& options,
                                                    const Image& image) const {
  constexpr int kMaxAspectRatio = 200;
  const ImageSize from = AtLeastAPatch(image);
  const auto [shorter, longer] = std::minmax(from.width, from.height);
  if (longer > int64_t{kMaxAspectRatio} * shorter) {
    return InvalidArgument(
        "the image of {} x {} pixels is too narrow: the longer side may have {} "
        "times the shorter one; cut off a part of it",
        image.width, image.height, kMaxAspectRatio);
  }
  Image changed;
  if (resize_) {
    ASSIGN_OR_RETURN(changed, ResizeWithinLimit(image, SizeFor(from, options), resampling_));
  }
  const Image& resized = resize_ ? changed : image;
  const int32_t factor = patch_size_ * merge_size_;
  RETURN_IF_ERROR(CheckMultiples(resized, factor));
  PreparedImage prepared{.grid_height = resized.height / patch_size_,
                         .grid_width = resized.width / patch_size_,
                         .image_height = image.height,
                         .image_width = image.width};
  prepared.shape = {prepared.grid_height * prepared.grid_width, 3, temporal_patch_size_,
                    patch_size_, patch_size_};
  prepared.values.reserve(resized.rgb.size() * temporal_patch_size_);
  for (int32_t y = 0; y < resized.height; y += factor) {
    for (int32_t x = 0; x < resized.width; x += factor) {
      for (int32_t i = 0; i < merge_size_ * merge_size_; ++i) {
        AppendPatch(resized,
                    {.top = y + (i / merge_size_ * patch_size_),
                     .left = x + (i % merge_size_ * patch_size_),
                     .size = patch_size_,
                     .frames = temporal_patch_size_},
                    table_, prepared.values);
      }
    }
  }
  return prepared;
}

}  // namespace tokamak
