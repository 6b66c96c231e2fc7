// Liu et al., "LLaVA-NeXT", 2024: an image is scaled to the best of several resolutions and cut
// into tiles of the tower's size. Reference: transformers, models/llava_next.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/error.h"
#include "images/processors.h"

namespace tokamak {
namespace {

constexpr ImageSize kTile = {224, 224};  // by default

std::vector<ImageSize> ReadResolutions(const JsonReader& reader) {
  const JsonReader member = reader["image_grid_pinpoints"];
  if (!member.present()) return {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
  std::vector<ImageSize> resolutions;
  member.ForEach(1000, [&](const JsonReader& pair) {
    if (pair.Size() != 2) return pair.Bad("a height and a width");
    resolutions.push_back({static_cast<int32_t>(pair[0].Int(1, kMaxSide)),
                           static_cast<int32_t>(pair[1].Int(1, kMaxSide))});
  });
  if (resolutions.empty()) member.Bad("at least one resolution");
  return resolutions;
}

// The largest size with the image's aspect ratio within another one.
ImageSize Within(const Image& image, ImageSize bounds) {
  const double scale_width = static_cast<double>(bounds.width) / image.width;
  const double scale_height = static_cast<double>(bounds.height) / image.height;
  if (scale_width < scale_height) {
    const double height = std::ceil(image.height * scale_width);
    return {std::min(static_cast<int32_t>(height), bounds.height), bounds.width};
  }
  const double width = std::ceil(image.width * scale_height);
  return {bounds.height, std::min(static_cast<int32_t>(width), bounds.width)};
}

}  // namespace

LlavaNextProcessor::LlavaNextProcessor(const JsonReader& reader)
    : size_(ReadTargetSize(reader, {224})),
      resize_tiles_(reader.BoolOr("do_resize", true)),
      crop_(ReadCenterCrop(reader, kTile)),
      resolutions_(ReadResolutions(reader)),
      resampling_(ReadResampling(reader)),
      table_(reader, kClipMean, kClipStd) {
  // These pad a batch, not an image.
  (void)reader.Has("do_pad");
  (void)reader.Has("pad_size");
  // transformers takes crop_size even where nothing is cropped.
  tile_ = ReadCropSize(reader).value_or(kTile).height;
  for (const ImageSize& resolution : resolutions_) {
    if (!reader.ok() || (resolution.height % tile_ == 0 && resolution.width % tile_ == 0)) continue;
    reader.Fail("image_grid_pinpoints",
                fmt::format("has {} x {}, which tiles of {} pixels (crop_size) do not fill",
                            resolution.height, resolution.width, tile_));
  }
}

// The one that keeps most of the image's pixels; among these, the one with the least padding.
ImageSize LlavaNextProcessor::BestResolution(const Image& image) const {
  ImageSize best;
  int64_t most_kept = 0, least_wasted = INT64_MAX;
  for (const ImageSize& resolution : resolutions_) {
    const double scale = std::min(static_cast<double>(resolution.width) / image.width,
                                  static_cast<double>(resolution.height) / image.height);
    const int64_t kept = std::min(
        static_cast<int64_t>(image.width * scale) * static_cast<int64_t>(image.height * scale),
        int64_t{image.width} * image.height);
    const int64_t wasted = int64_t{resolution.width} * resolution.height - kept;
    if (kept > most_kept || (kept == most_kept && wasted < least_wasted)) {
      best = resolution;
      most_kept = kept;
      least_wasted = wasted;
    }
  }
  return best;
}

std::vector<TileGrid> LlavaNextProcessor::grids() const {
  std::vector<TileGrid> grids;
  for (const ImageSize& resolution : resolutions_) {
    grids.push_back({resolution.height / tile_, resolution.width / tile_});
  }
  return grids;
}

Result<PreparedImage> LlavaNextProcessor::Prepare(const Image& image) const {
  const ImageSize best = BestResolution(image);
  const ImageSize within = Within(image, best);
  ASSIGN_OR_RETURN(const Image resized, ResizeWithinLimit(image, within, resampling_));
  const Image padded = Pad(resized, best, (best.width - resized.width) / 2,
                           (best.height - resized.height) / 2, {0, 0, 0});
  const int32_t edge = size_.shortest_edge;
  const ImageSize thumbnail = edge > 0 ? ImageSize{edge, edge} : size_.size;
  std::vector<Image> tiles(1);
  ASSIGN_OR_RETURN(tiles[0], ResizeWithinLimit(image, thumbnail, resampling_));
  for (int32_t y = 0; y < best.height; y += tile_) {
    for (int32_t x = 0; x < best.width; x += tile_) {
      tiles.push_back(Crop(padded, x, y, {tile_, tile_}));
    }
  }
  PreparedImage prepared{.grid_height = best.height / tile_,
                         .grid_width = best.width / tile_,
                         .image_height = image.height,
                         .image_width = image.width};
  for (Image& tile : tiles) {
    if (resize_tiles_) {
      ASSIGN_OR_RETURN(tile, ResizeWithinLimit(tile, size_.For(tile), resampling_));
    }
    if (crop_) tile = CenterCrop(tile, *crop_);
    if (tile.width != tiles[0].width || tile.height != tiles[0].height) {
      return InvalidArgument(
          "tiles are {} x {} pixels, but the thumbnail is {} x {}: size and "
          "crop_size do not fit together",
          tile.width, tile.height, tiles[0].width, tiles[0].height);
    }
    AppendValues(tile, table_, prepared.values);
  }
  prepared.shape = {static_cast<int32_t>(tiles.size()), 3, tiles[0].height, tiles[0].width};
  return prepared;
}

}  // namespace tokamak
