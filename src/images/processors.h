// One class per image processor, for processor.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/json/json_reader.h"
#include "images/processor.h"
#include "images/steps.h"

namespace tokamak {

// CLIP, LLaVA and SigLIP: one tile per image.
class SingleTileProcessor : public ImageProcessor {
 public:
  struct Defaults {
    TargetSize size;
    std::optional<ImageSize> crop;
    const Channels& mean;
    const Channels& std;
  };
  static Defaults Clip() { return {{224}, ImageSize{224, 224}, kClipMean, kClipStd}; }
  static Defaults Siglip() { return {{0, {224, 224}}, std::nullopt, kSiglipMean, kSiglipStd}; }

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

// Qwen2-VL: patches of an image of about its own size.
class Qwen2VlProcessor : public ImageProcessor {
 public:
  Qwen2VlProcessor(const JsonReader& reader, int32_t max_patches);
  Result<PreparedImage> Prepare(const Image& image) const override;
  int32_t max_patches() const override { return max_pixels_ / (patch_size_ * patch_size_); }

 private:
  ImageSize SizeFor(const Image& image) const;
  void AppendPatch(const Image& image, int32_t top, int32_t left, std::vector<float>& values) const;

  bool resize_;
  int32_t min_pixels_, max_pixels_;
  int32_t patch_size_, temporal_patch_size_, merge_size_;
  Resampling resampling_;
  ValueTable table_;
};

}  // namespace tokamak
