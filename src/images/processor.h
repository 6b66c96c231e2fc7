// Prepares decoded images for a vision tower as the checkpoint's preprocessor_config.json says.
// The values are those of the image processors of transformers 5.23 (the default ones, which use
// torchvision; those whose names end in Pil resize differently).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/json/json_value.h"
#include "images/image.h"
#include "tokamak/image_options.h"
#include "tokamak/status.h"

namespace tokamak {

// One image as a vision tower takes it.
struct PreparedImage {
  // Towers of a fixed size, and Pixtral with one tile: [tiles, 3, height, width]. Qwen2-VL and
  // GLM-4.1V: [patches, 3, temporal_patch_size, patch_size, patch_size]. MiniCPM-V: [patches, 3,
  // patch_size, patch_size].
  std::vector<int32_t> shape = {};
  std::vector<float> values = {};
  // LLaVA-NeXT: the grid of tiles, which follow the thumbnail. Qwen2-VL and GLM-4.1V: the grid of
  // patches, whose order is that of squares of merge_size x merge_size. MiniCPM-V: the same, row by
  // row. Pixtral: the grid of rows for the language model. Others: 0.
  int32_t grid_height = 0, grid_width = 0;
  int32_t image_height = 0, image_width = 0;  // in pixels, before it was prepared
  // MiniCPM-V: the parts of a large image, row by row, which are images of their own.
  std::vector<PreparedImage> tiles = {};
  int32_t tile_columns = 0;  // tiles beside each other
};

// How many tiles are below and beside each other.
struct TileGrid {
  int32_t height = 0, width = 0;
};

// The special tokens of a prompt that show an image line by line, as they are spelled.
struct LineTokens {
  std::string row;        // stands for a row of the image
  std::string line_end;   // follows each line of rows but the last
  std::string image_end;  // follows the last line
};

// The special tokens of a prompt around the rows of an image and of its tiles, as they are spelled.
struct TileTokens {
  std::string image_begin = "<image>", image_end = "</image>";
  std::string tile_begin = "<slice>", tile_end = "</slice>";
  std::string line_end = "\n";  // behind each line of tiles but the last
  // Around the number of the image in the prompt, from 0, which comes first; empty: it has none.
  std::string number_begin = "<image_id>", number_end = "</image_id>";
};

// Immutable and thread-safe.
class ImageProcessor {
 public:
  virtual ~ImageProcessor() = default;
  // The grids into which images may be cut; none if they are not cut.
  virtual std::vector<TileGrid> grids() const { return {}; }
  // kInvalidArgument or kResourceExhausted for an image that is too narrow.
  virtual Result<PreparedImage> Prepare(const Image& image) const = 0;
  // The same with options, which CheckImageOptions has accepted. Absent ones are those of
  // options().
  virtual Result<PreparedImage> PrepareWith(const ImageOptions& /*options*/,
                                            const Image& image) const {
    return Prepare(image);
  }
  // The options of an image without any, complete; empty if images have none.
  virtual ImageOptions options() const { return {}; }
  // The patches of the largest image, if the processor keeps about its size; else 0.
  virtual int32_t max_patches() const { return 0; }
  // Null if the rows of an image follow each other without tokens between them; else a line has
  // PreparedImage::grid_width rows.
  virtual const LineTokens* line_tokens() const { return nullptr; }
  virtual int32_t max_lines() const { return 0; }  // of an image with line tokens
  // Null if an image has no PreparedImage::tiles.
  virtual const TileTokens* tile_tokens() const { return nullptr; }
  virtual int32_t max_tiles() const { return 0; }  // of an image with tile tokens
  // The patches of a row for the language model, if the file says so; else 0.
  virtual int32_t patches_per_row() const { return 0; }
};

inline constexpr int32_t kAnyPatches = std::numeric_limits<int32_t>::max();

// Reads a preprocessor_config.json; `source`, the file's name, starts every message. Processors:
// CLIP, LLaVA, SigLIP, Gemma 3, LLaVA-NeXT, Qwen2-VL, GLM-4.1V, Pixtral and MiniCPM-V. Those that
// keep about an image's size make at most `max_patches` of it, whatever the file allows. `outer`:
// processor_config.json, which Pixtral's also reads; null if there is none. A field that is
// unknown, or whose value is not implemented, is an error that names it.
Result<std::unique_ptr<const ImageProcessor>> ReadImageProcessor(
    const JsonValue& config, const std::string& source, int32_t max_patches = kAnyPatches,
    const JsonValue& outer = JsonValue());

// Reads how a Hugging Face directory says that images are prepared: the "image_processor" of
// processor_config.json, which newer versions of transformers write, or else
// preprocessor_config.json. kNotFound if it has neither.
Result<std::unique_ptr<const ImageProcessor>> LoadImageProcessor(const std::string& directory,
                                                                 int32_t max_patches = kAnyPatches);

}  // namespace tokamak
