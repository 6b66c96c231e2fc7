// One class per image processor, for processor.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ceil_div.h"
#include "base/json/json_reader.h"
#include "images/processor.h"
#include "images/steps.h"

namespace tokamak {

// CLIP, LLaVA, SigLIP and Gemma 3: one tile per image.
class SingleTileProcessor : public ImageProcessor {
 public:
  struct Defaults {
    TargetSize size;
    std::optional<ImageSize> crop;
    const Channels& mean;
    const Channels& std;
    Resampling resampling = Resampling::kBicubic;
  };
  static Defaults Clip() { return {{224}, ImageSize{224, 224}, kClipMean, kClipStd}; }
  static Defaults Siglip() { return {{0, {224, 224}}, std::nullopt, kSiglipMean, kSiglipStd}; }
  static Defaults Gemma3() {
    Defaults defaults = Siglip();
    defaults.resampling = Resampling::kBilinear;
    return defaults;
  }

  SingleTileProcessor(const JsonReader& reader, const Defaults& defaults, bool may_pad);
  Result<PreparedImage> Prepare(const Image& image) const override;

 private:
  bool pad_ = false;                     // to a square, with the mean's color
  std::optional<TargetSize> size_ = {};  // absent: not resized
  std::optional<ImageSize> crop_ = {};   // absent: not cropped
  Resampling resampling_;
  ValueTable table_;
};

// LLaVA-NeXT: a thumbnail, and the image in tiles.
class LlavaNextProcessor : public ImageProcessor {
 public:
  explicit LlavaNextProcessor(const JsonReader& reader);
  std::vector<TileGrid> grids() const override;
  Result<PreparedImage> Prepare(const Image& image) const override;

 private:
  ImageSize BestResolution(const Image& image) const;

  TargetSize size_;
  bool resize_tiles_;
  std::optional<ImageSize> crop_;
  int32_t tile_ = 0;  // width and height
  std::vector<ImageSize> resolutions_;
  Resampling resampling_;
  ValueTable table_;
};

// Qwen2-VL and GLM-4.1V: patches of an image of about its own size.
class Qwen2VlProcessor : public ImageProcessor {
 public:
  // `glm`: the limits count the pixels of all frames of a patch, and an image that is smaller than
  // a merged patch is enlarged first.
  Qwen2VlProcessor(const JsonReader& reader, int32_t max_patches, bool glm);
  Result<PreparedImage> Prepare(const Image& image) const override {
    return PrepareWith({}, image);
  }
  Result<PreparedImage> PrepareWith(const ImageOptions& options, const Image& image) const override;
  ImageOptions options() const override;
  int32_t max_patches() const override {
    return max_pixels_ / (frames() * patch_size_ * patch_size_);
  }

 private:
  int32_t frames() const { return glm_ ? temporal_patch_size_ : 1; }  // that the limits count
  // The size from which SizeFor starts.
  ImageSize AtLeastAPatch(const Image& image) const;
  ImageSize SizeFor(const ImageSize& from, const ImageOptions& options) const;
  bool glm_, resize_;
  int32_t min_pixels_, max_pixels_;
  int32_t patch_size_, temporal_patch_size_, merge_size_;
  Resampling resampling_;
  ValueTable table_;
};

// Pixtral: an image of about its own size, in squares of pixels that each become a row.
class PixtralProcessor : public ImageProcessor {
 public:
  // `outer`: processor_config.json.
  PixtralProcessor(const JsonReader& reader, const JsonReader& outer, int32_t max_patches);
  Result<PreparedImage> Prepare(const Image& image) const override;
  int32_t max_patches() const override {
    return lines(most_.height) * lines(most_.width) * merge_size_ * merge_size_;
  }
  const LineTokens* line_tokens() const override { return &tokens_; }
  int32_t max_lines() const override { return lines(most_.height); }

 private:
  int32_t unit() const { return patch_size_ * merge_size_; }  // pixels of a square's side
  int32_t lines(int32_t pixels) const { return CeilDiv(pixels, unit()); }
  ImageSize SizeFor(const Image& image) const;

  bool resize_;
  int32_t patch_size_, merge_size_;
  ImageSize most_;
  LineTokens tokens_;
  Resampling resampling_;
  ValueTable table_;
};

// MiniCPM-V 4.6: an image of about its own aspect ratio, and large images also in tiles.
class MiniCpmVProcessor : public ImageProcessor {
 public:
  // `max_patches`: of the image and of each tile.
  MiniCpmVProcessor(const JsonReader& reader, int32_t max_patches);
  Result<PreparedImage> Prepare(const Image& image) const override;
  const TileTokens* tile_tokens() const override { return &tokens_; }
  int32_t max_tiles() const override { return max_tiles_ > 1 ? max_tiles_ : 0; }
  int32_t patches_per_row() const override { return row_side_ * row_side_; }

 private:
  double pixels() const { return static_cast<double>(side_) * side_; }
  ImageSize SizeFor(double height, double width, bool enlarge) const;
  TileGrid GridFor(const Image& image) const;
  PreparedImage PatchesOf(const Image& image, int32_t top, int32_t left, ImageSize size) const;

  int32_t max_patches_;
  int32_t max_tiles_;  // 1: images are not cut
  int32_t side_;       // of a square with as many pixels as a tile has
  int32_t patch_size_;
  int32_t row_side_ = 0;  // patches on the side of a square that becomes a row
  TileTokens tokens_;
  Resampling resampling_;
  ValueTable table_;
};

}  // namespace tokamak
