// MiniCPM-V 4.6: an image with about as many pixels as a square of a certain size, and a large one
// again in tiles of about that size. Reference: transformers, models/minicpmv4_6.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "images/processors.h"

namespace tokamak {
namespace {

// The multiple of `divisor` that is nearest, at least one; halves are rounded to even, as in
// Python.
int32_t Multiple(double length, int32_t divisor) {
  return std::max(static_cast<int32_t>(std::nearbyint(length / divisor)), 1) * divisor;
}

}  // namespace

MiniCpmVProcessor::MiniCpmVProcessor(const JsonReader& reader, int32_t max_patches)
    : max_patches_(max_patches),
      max_tiles_(reader.IntOr("max_slice_nums", 9, Positive(64))),
      side_(reader.IntOr("scale_resolution", 448, Positive(kMaxSide))),
      patch_size_(reader.IntOr("patch_size", 14, Positive(1 << 10))),
      resampling_(ReadResampling(reader)),
      table_(reader, kSiglipMean, kSiglipStd) {
  if (!reader.BoolOr("slice_mode", true)) max_tiles_ = 1;
  if (!reader.BoolOr("use_image_id", true)) tokens_.number_begin.clear();
  const std::string mode = reader.StringOr("downsample_mode", "16x");
  row_side_ = mode == "4x" ? 2 : 4;
  if (mode != "4x" && mode != "16x") {
    reader["downsample_mode"].Fail(Unimplemented("{} is \"{}\"; \"4x\" and \"16x\" are implemented",
                                                 reader["downsample_mode"].path(), mode));
  }
  if (!reader.BoolOr("do_resize", true)) {
    reader["do_resize"].Fail(Unimplemented("{} is false, but these images are always resized",
                                           reader["do_resize"].path()));
  }
}

ImageSize MiniCpmVProcessor::SizeFor(double height, double width, bool enlarge) const {
  if (height * width > pixels() || enlarge) {
    const double ratio = width / height;
    height = std::trunc(side_ / std::sqrt(ratio));
    width = std::trunc(height * ratio);
  }
  const int32_t unit = patch_size_ * row_side_;
  return {Multiple(height, unit), Multiple(width, unit)};
}

// Looks at the grids with about as many tiles as squares of side_ cover the image, and returns the
// one whose aspect ratio is nearest to the image's. All 0: the image is not cut.
TileGrid MiniCpmVProcessor::GridFor(const Image& image) const {
  const double width = image.width, height = image.height;
  const double covering = std::ceil(width * height / pixels());
  const auto tiles = static_cast<int32_t>(std::min<double>(covering, max_tiles_));
  TileGrid best;
  if (tiles <= 1) return best;
  double least_error = HUGE_VAL;
  for (int32_t count = std::max(tiles - 1, 2); count <= std::min(tiles + 1, max_tiles_); ++count) {
    for (int32_t rows = 1; rows <= count; ++rows) {
      if (count % rows != 0) continue;
      const double ratio = static_cast<double>(count / rows) / rows;
      const double error = std::abs(std::log(width / height) - std::log(ratio));
      if (error > least_error || (error == least_error && rows <= best.height)) continue;
      best = {rows, count / rows};
      least_error = error;
    }
  }
  return best;
}

// A part of an image, in patches.
PreparedImage MiniCpmVProcessor::PatchesOf(const Image& image, int32_t top, int32_t left,
                                           ImageSize size) const {
  PreparedImage prepared{.grid_height = size.height / patch_size_,
                         .grid_width = size.width / patch_size_};
  prepared.shape = {prepared.grid_height * prepared.grid_width, 3, patch_size_, patch_size_};
  for (int32_t y = top; y < top + size.height; y += patch_size_) {
    for (int32_t x = left; x < left + size.width; x += patch_size_) {
      AppendPatch(image, {.top = y, .left = x, .size = patch_size_}, table_, prepared.values);
    }
  }
  return prepared;
}

Result<PreparedImage> MiniCpmVProcessor::Prepare(const Image& image) const {
  const TileGrid grid = GridFor(image);
  const bool cut = grid.height > 0;
  const ImageSize whole = SizeFor(image.height, image.width, /*enlarge=*/!cut);
  const ImageSize tile = !cut ? whole
                              : SizeFor(Multiple(image.height, grid.height) / grid.height,
                                        Multiple(image.width, grid.width) / grid.width,
                                        /*enlarge=*/true);
  for (const ImageSize& size : {whole, tile}) {
    const int64_t patches =
        int64_t{size.height} * size.width / (int64_t{patch_size_} * patch_size_);
    if (patches <= max_patches_) continue;
    return InvalidArgument(
        "the image of {} x {} pixels is too narrow: it would be scaled to {} x {}, which are {} "
        "patches of at most {}; cut off a part of it",
        image.width, image.height, size.width, size.height, patches, max_patches_);
  }
  ASSIGN_OR_RETURN(const Image scaled, ResizeWithinLimit(image, whole, resampling_));
  PreparedImage prepared = PatchesOf(scaled, 0, 0, whole);
  prepared.tile_columns = grid.width;
  if (cut) {
    const ImageSize all = {tile.height * grid.height, tile.width * grid.width};
    ASSIGN_OR_RETURN(const Image refined, ResizeWithinLimit(image, all, resampling_));
    for (int32_t y = 0; y < all.height; y += tile.height) {
      for (int32_t x = 0; x < all.width; x += tile.width) {
        prepared.tiles.push_back(PatchesOf(refined, y, x, tile));
      }
    }
  }
  prepared.image_height = image.height;
  prepared.image_width = image.width;
  return prepared;
}

}  // namespace tokamak
