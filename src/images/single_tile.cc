#include "base/error.h"
#include "images/processors.h"

namespace tokamak {

SingleTileProcessor::SingleTileProcessor(const JsonReader& reader, const Defaults& defaults,
                                         bool may_pad)
    : pad_(reader.BoolOr("do_pad", false)),
      size_(ReadTargetSize(reader, defaults.size)),
      crop_(ReadCenterCrop(reader, defaults.crop)),
      resampling_(ReadResampling(reader, defaults.resampling)),
      table_(reader, defaults.mean, defaults.std) {
  if (!reader.BoolOr("do_resize", true)) size_.reset();
  if (pad_ && !may_pad) {
    reader["do_pad"].Fail(Unimplemented("{} is true, which is implemented for LlavaImageProcessor",
                                        reader["do_pad"].path()));
  }
  (void)reader.Has("pad_size");  // LLaVA pads to a square
}

Result<PreparedImage> SingleTileProcessor::Prepare(const Image& image) const {
  const Image* tile = &image;
  Image changed;
  if (pad_) {
    ASSIGN_OR_RETURN(changed, PadToSquare(*tile, table_.mean_levels()));
    tile = &changed;
  }
  if (size_) {
    ASSIGN_OR_RETURN(changed, ResizeWithinLimit(*tile, size_->For(*tile), resampling_));
    tile = &changed;
  }
  if (crop_) {
    changed = CenterCrop(*tile, *crop_);
    tile = &changed;
  }
  PreparedImage prepared{.shape = {1, 3, tile->height, tile->width},
                         .image_height = image.height,
                         .image_width = image.width};
  AppendValues(*tile, table_, prepared.values);
  return prepared;
}

}  // namespace tokamak
