// Pixtral, arXiv:2410.07073: an image of about its own size and aspect ratio, in whole squares of
// pixels. In the prompt, a token ends each line of squares. Reference: transformers,
// models/pixtral.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/ceil_div.h"
#include "base/error.h"
#include "images/processors.h"

namespace tokamak {
namespace {

// The largest width and height.
ImageSize ReadMost(const JsonReader& reader) {
  const JsonReader size = reader["size"];
  if (!size.present()) return {1024, 1024};
  if (size.Has("longest_edge")) {
    size.Only({"longest_edge"});
    const int32_t edge = size.Int("longest_edge", Positive(kMaxSide));
    return {edge, edge};
  }
  size.Only({"height", "width"});
  return {size.Int("height", Positive(kMaxSide)), size.Int("width", Positive(kMaxSide))};
}

}  // namespace

PixtralProcessor::PixtralProcessor(const JsonReader& reader, const JsonReader& outer,
                                   int32_t max_patches)
    : resize_(reader.BoolOr("do_resize", true)),
      patch_size_(outer.IntOr("patch_size", 16, Positive(1 << 10))),
      merge_size_(outer.IntOr("spatial_merge_size", 1, Positive(16))),
      most_(ReadMost(reader)),
      tokens_{.row = outer.StringOr("image_token", "[IMG]"),
              .line_end = outer.StringOr("image_break_token", "[IMG_BREAK]"),
              .image_end = outer.StringOr("image_end_token", "[IMG_END]")},
      resampling_(ReadResampling(reader)),
      table_(reader, kClipMean, kClipStd) {
  // The tower's largest image is a square.
  const auto side = static_cast<int32_t>(std::sqrt(max_patches));
  const int32_t edge = std::max(side / merge_size_, 1) * std::min(unit(), kMaxSide);
  most_ = {std::min(most_.height, edge), std::min(most_.width, edge)};
  if (reader.BoolOr("do_center_crop", false)) {
    reader.Fail(Unimplemented("{} is true, which is not implemented for Pixtral",
                              reader["do_center_crop"].path()));
  }
  // Padding makes the images of a batch equally large; the outer file has the size of patches.
  for (const std::string_view name :
       {"crop_size", "default_to_square", "do_pad", "pad_size", "patch_size"}) {
    (void)reader.Has(name);
  }
}

ImageSize PixtralProcessor::SizeFor(const Image& image) const {
  const double height = image.height, width = image.width;
  const double ratio = std::max({height / most_.height, width / most_.width, 1.0});
  const auto fill = [this](double side) {
    return CeilDiv(static_cast<int32_t>(std::floor(side)), unit()) * unit();
  };
  return {fill(height / ratio), fill(width / ratio)};
}

Result<PreparedImage> PixtralProcessor::Prepare(const Image& image) const {
  Image changed;
  if (resize_) {
    const ImageSize size = SizeFor(image);
    if (size.height == 0 || size.width == 0) {
      return InvalidArgument(
          "the image of {} x {} pixels is too narrow: scaled to {} x {} it has no pixels; cut off "
          "a "
          "part of it",
          image.width, image.height, most_.width, most_.height);
    }
    ASSIGN_OR_RETURN(changed, ResizeWithinLimit(image, size, resampling_));
  }
  const Image& resized = resize_ ? changed : image;
  RETURN_IF_ERROR(CheckMultiples(resized, unit()));
  PreparedImage prepared{.shape = {1, 3, resized.height, resized.width},
                         .grid_height = resized.height / unit(),
                         .grid_width = resized.width / unit(),
                         .image_height = image.height,
                         .image_width = image.width};
  AppendValues(resized, table_, prepared.values);
  return prepared;
}

}  // namespace tokamak
