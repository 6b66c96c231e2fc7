#include "local/load_images.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace tokamak {
namespace {

// That of the model, or of a dummy model's config.json.
std::string DirectoryOf(const Checkpoint& checkpoint) {
  if (!checkpoint.directory.empty()) return checkpoint.directory;
  const size_t slash = checkpoint.source.rfind('/');
  return slash == std::string::npos ? "." : checkpoint.source.substr(0, slash);
}

Result<ImageLayout> LayoutOf(const ImageEncoder& encoder, const PreparedImage& image) {
  return encoder.Layout({.shape = image.shape,
                         .values = image.values,
                         .grid_height = image.grid_height,
                         .grid_width = image.grid_width,
                         .image_height = image.image_height,
                         .image_width = image.image_width});
}

Result<ImageTokens> TokensOf(const ImageEncoder& encoder, const PreparedImage& image,
                             int32_t row_token) {
  ASSIGN_OR_RETURN(const ImageLayout layout, LayoutOf(encoder, image));
  return ImageTokens{.tokens = std::vector<int32_t>(layout.rows.size(), row_token),
                     .grid_width = layout.grid_width};
}

// A processor that does not fit the model should be found now, not by the first request.
Status TryProcessor(const ImageProcessor& processor, const ImageEncoder& encoder) {
  constexpr int32_t kSide = 64;
  const Image image{
      .width = kSide, .height = kSide, .rgb = std::vector<uint8_t>(3 * kSide * kSide, 128)};
  ASSIGN_OR_RETURN(PreparedImage prepared, processor.Prepare(image));
  RETURN_IF_ERROR(LayoutOf(encoder, prepared).status());
  for (const TileGrid& grid : processor.grids()) {
    prepared.grid_height = grid.height;
    prepared.grid_width = grid.width;
    prepared.shape[0] = 1 + grid.height * grid.width;
    RETURN_IF_ERROR(LayoutOf(encoder, prepared).status());
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<const ImageProcessor>> OpenImageProcessor(const Checkpoint& checkpoint,
                                                                 const Model& model,
                                                                 const EngineOptions& options) {
  using Processor = std::unique_ptr<const ImageProcessor>;
  if (model.image_encoder() == nullptr || options.max_images == 0) return Processor();
  Result<Processor> processor =
      LoadImageProcessor(DirectoryOf(checkpoint), model.image_encoder()->spec().max_image_tokens);
  if (processor.status().code() == StatusCode::kNotFound) {
    LogWarning("images are refused: {}", processor.status().message());
    return Processor();
  }
  RETURN_IF_ERROR(processor.status());
  RETURN_IF_ERROR(TryProcessor(**processor, *model.image_encoder()).WithContext(checkpoint.source));
  return processor;
}

std::unique_ptr<const ImageInput> MakeImageInput(std::unique_ptr<const ImageProcessor> processor,
                                                 const Model& model, const Tokenizer* tokenizer,
                                                 const EngineOptions& options) {
  const ImageEncoder& encoder = *model.image_encoder();
  const int32_t id = model.spec().image_token;
  int32_t max_rows = encoder.spec().max_image_rows;
  if (const int32_t patches = processor->max_patches(); patches > 0) {
    max_rows = std::min(max_rows, patches / encoder.spec().tokens_per_row);
  }
  ImageInfo info = {.placeholder = std::string(tokenizer ? tokenizer->TokenPiece(id) : ""),
                    .placeholder_id = id,
                    .max_images = options.max_images,
                    .max_tokens = max_rows,
                    .max_bytes = options.max_image_bytes,
                    .max_pixels = options.max_image_pixels};
  return std::make_unique<const ImageInput>(ImageInput::Options{
      .info = std::move(info),
      .processor = std::move(processor),
      .row_token = id,
      .tokens = [&encoder, id](const PreparedImage& image) { return TokensOf(encoder, image, id); }});
}

}  // namespace tokamak
