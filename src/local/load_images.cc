#include "local/load_images.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "images/image_options.h"

namespace tokamak {
namespace {

constexpr std::string_view kOptions = "image_options";  // the field, in messages

// That of the model, or of a dummy model's config.json.
std::string DirectoryOf(const Checkpoint& checkpoint) {
  if (!checkpoint.directory.empty()) return checkpoint.directory;
  const size_t slash = checkpoint.source.rfind('/');
  return slash == std::string::npos ? "." : checkpoint.source.substr(0, slash);
}

// How an mmproj file says that images are prepared.
Result<std::unique_ptr<const ImageProcessor>> ReadFromMmproj(const Checkpoint& checkpoint,
                                                             int32_t max_patches) {
  const JsonValue& all = checkpoint.image_processor;
  const std::string& name = checkpoint.mmproj->name();
  const JsonValue* const inner = all.Find("image_processor");
  if (inner == nullptr) return ReadImageProcessor(all, name, max_patches);
  return ReadImageProcessor(*inner, name, max_patches, all);
}

// `has_lines`: the prompt shows lines of image.grid_width rows.
Result<ImageLayout> LayoutOf(const ImageEncoder& encoder, const PreparedImage& image,
                             bool has_lines) {
  ASSIGN_OR_RETURN(ImageLayout layout, encoder.Layout({.shape = image.shape,
                                                       .values = image.values,
                                                       .grid_height = image.grid_height,
                                                       .grid_width = image.grid_width,
                                                       .image_height = image.image_height,
                                                       .image_width = image.image_width}));
  if (has_lines && int64_t{image.grid_height} * image.grid_width != std::ssize(layout.rows)) {
    return InvalidArgument("an image was prepared as {} x {} rows, but the model makes {} of it",
                           image.grid_height, image.grid_width, layout.rows.size());
  }
  return layout;
}

// The ids of special tokens in prompts with images.
struct ImageTokenIds {
  int32_t row = 0;
  bool has_lines = false;  // PreparedImage::grid_width rows each
  int32_t line_end = 0, image_end = 0;
  bool has_tiles = false;  // PreparedImage::tiles
  int32_t image_begin = 0, tile_begin = 0, tile_end = 0;
  std::vector<int32_t> tiles_end = {};  // of a line
};

// The tokens of an image with TileTokens.
Result<ImageTokens> TokensOfTiles(const ImageEncoder& encoder, const PreparedImage& image,
                                  const ImageTokenIds& ids) {
  ImageTokens result;
  const auto append = [&](const PreparedImage& part, int32_t begin, int32_t end) -> Status {
    ASSIGN_OR_RETURN(const ImageLayout layout, LayoutOf(encoder, part, /*has_lines=*/false));
    result.tokens.push_back(begin);
    result.tokens.insert(result.tokens.end(), layout.rows.size(), ids.row);
    result.tokens.push_back(end);
    return Status();
  };
  RETURN_IF_ERROR(append(image, ids.image_begin, ids.image_end));
  for (size_t i = 0; i < image.tiles.size(); ++i) {
    if (i > 0 && i % static_cast<size_t>(image.tile_columns) == 0) {
      result.tokens.insert(result.tokens.end(), ids.tiles_end.begin(), ids.tiles_end.end());
    }
    RETURN_IF_ERROR(append(image.tiles[i], ids.tile_begin, ids.tile_end));
  }
  return result;
}

Result<ImageTokens> TokensOf(const ImageEncoder& encoder, const PreparedImage& image,
                             const ImageTokenIds& ids) {
  if (ids.has_tiles) return TokensOfTiles(encoder, image, ids);
  ASSIGN_OR_RETURN(const ImageLayout layout, LayoutOf(encoder, image, ids.has_lines));
  ImageTokens result{.grid_width = layout.grid_width};
  if (!ids.has_lines) {
    result.tokens.assign(layout.rows.size(), ids.row);
    return result;
  }
  for (int32_t line = 0; line < image.grid_height; ++line) {
    result.tokens.insert(result.tokens.end(), static_cast<size_t>(image.grid_width), ids.row);
    result.tokens.push_back(ids.line_end);
  }
  result.tokens.back() = ids.image_end;
  return result;
}

Result<ImageTokenIds> FindTileTokens(const TileTokens& tokens, int32_t row,
                                     const Tokenizer* tokenizer) {
  ImageTokenIds ids{.row = row, .has_tiles = true};
  int32_t number_begin = 0, number_end = 0;
  for (const auto& [id, spelling] : {std::pair(&ids.image_begin, &tokens.image_begin),
                                     {&ids.image_end, &tokens.image_end},
                                     {&ids.tile_begin, &tokens.tile_begin},
                                     {&ids.tile_end, &tokens.tile_end},
                                     {&number_begin, &tokens.number_begin},
                                     {&number_end, &tokens.number_end}}) {
    if (spelling->empty()) continue;
    *id = tokenizer == nullptr ? -1 : tokenizer->FindToken(*spelling);
    if (*id >= 0) continue;
    return InvalidArgument("the tokenizer lacks \"{}\", which surrounds images", *spelling);
  }
  // Between two lines, as in a prompt.
  ASSIGN_OR_RETURN(ids.tiles_end,
                   tokenizer->Encode(tokens.tile_end + tokens.line_end + tokens.tile_begin,
                                     {.add_special = false, .parse_special = true}));
  if (ids.tiles_end.size() < 3 || ids.tiles_end.front() != ids.tile_end ||
      ids.tiles_end.back() != ids.tile_begin) {
    return InvalidArgument("the tokenizer does not keep \"{}\" and \"{}\" apart", tokens.tile_end,
                           tokens.tile_begin);
  }
  ids.tiles_end.erase(ids.tiles_end.begin());
  ids.tiles_end.pop_back();
  return ids;
}

Result<ImageTokenIds> FindTokens(const ImageProcessor& processor, int32_t row,
                                 const Tokenizer* tokenizer) {
  ImageTokenIds ids{.row = row};
  if (const TileTokens* const tiles = processor.tile_tokens()) {
    return FindTileTokens(*tiles, row, tokenizer);
  }
  const LineTokens* const tokens = processor.line_tokens();
  if (tokens == nullptr) return ids;
  ids.has_lines = true;
  for (const auto& [id, spelling] : {std::pair(&ids.row, &tokens->row),
                                     {&ids.line_end, &tokens->line_end},
                                     {&ids.image_end, &tokens->image_end}}) {
    *id = tokenizer == nullptr ? -1 : tokenizer->FindToken(*spelling);
    if (*id >= 0) continue;
    return InvalidArgument("processor_config.json: the tokenizer lacks \"{}\"", *spelling);
  }
  if (ids.row == row) return ids;
  return InvalidArgument(
      "processor_config.json: image_token: \"{}\" is token {}, but the model's is {}", tokens->row,
      ids.row, row);
}

// A processor that does not fit the model should be found now, not by the first request.
Status TryProcessor(const ImageProcessor& processor, const ImageEncoder& encoder) {
  constexpr int32_t kSide = 64;
  const Image image{
      .width = kSide, .height = kSide, .rgb = std::vector<uint8_t>(3 * kSide * kSide, 128)};
  if (const int32_t patches = processor.patches_per_row();
      patches > 0 && patches != encoder.spec().tokens_per_row) {
    return InvalidArgument(
        "an image is prepared for rows of {} patches, but the model makes rows of {}: "
        "downsample_mode of preprocessor_config.json is not that of config.json",
        patches, encoder.spec().tokens_per_row);
  }
  ASSIGN_OR_RETURN(PreparedImage prepared, processor.Prepare(image));
  const bool has_lines = processor.line_tokens() != nullptr;
  RETURN_IF_ERROR(LayoutOf(encoder, prepared, has_lines).status());
  for (const PreparedImage& tile : prepared.tiles) {
    RETURN_IF_ERROR(LayoutOf(encoder, tile, has_lines).status());
  }
  for (const TileGrid& grid : processor.grids()) {
    prepared.grid_height = grid.height;
    prepared.grid_width = grid.width;
    prepared.shape[0] = 1 + grid.height * grid.width;
    RETURN_IF_ERROR(LayoutOf(encoder, prepared, has_lines).status());
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<const ImageProcessor>> OpenImageProcessor(const Checkpoint& checkpoint,
                                                                 const Model& model,
                                                                 const EngineOptions& options) {
  using Processor = std::unique_ptr<const ImageProcessor>;
  const auto without_images = [&]() -> Result<Processor> {
    RETURN_IF_ERROR(CheckImageOptions(options.image_options, {}, 0, kOptions));
    return Processor();
  };
  if (model.image_encoder() == nullptr || options.max_images == 0) return without_images();
  const int32_t max_patches = model.image_encoder()->spec().max_image_tokens;
  Result<Processor> processor = checkpoint.mmproj
                                    ? ReadFromMmproj(checkpoint, max_patches)
                                    : LoadImageProcessor(DirectoryOf(checkpoint), max_patches);
  if (processor.status().code() == StatusCode::kNotFound) {
    LogWarning("images are refused: {}", processor.status().message());
    return without_images();
  }
  RETURN_IF_ERROR(processor.status());
  const int32_t rows = model.image_encoder()->spec().max_image_rows;
  if (model.spec().cache.bidirectional_images && options.max_batch_tokens / 2 < rows) {
    return InvalidArgument(
        "max_batch_tokens: is {}, but a step computes the {} tokens of an image together and needs "
        "room for twice as many, {}; or set max_images to 0, and the model takes only text",
        options.max_batch_tokens, rows, 2 * rows);
  }
  RETURN_IF_ERROR(TryProcessor(**processor, *model.image_encoder()).WithContext(checkpoint.source));
  const ImageOptions own = (*processor)->options();
  RETURN_IF_ERROR(
      CheckImageOptions(options.image_options, own, own.max_pixels.value_or(0), kOptions));
  return processor;
}

Result<std::unique_ptr<const ImageInput>> MakeImageInput(
    std::unique_ptr<const ImageProcessor> processor, const Model& model, const Tokenizer* tokenizer,
    const EngineOptions& options) {
  const ImageEncoder& encoder = *model.image_encoder();
  const int32_t id = model.spec().image_token;
  ASSIGN_OR_RETURN(const ImageTokenIds ids, FindTokens(*processor, id, tokenizer));
  int32_t max_rows = encoder.spec().max_image_rows;
  if (const int32_t patches = processor->max_patches(); patches > 0) {
    max_rows = std::min(max_rows, patches / encoder.spec().tokens_per_row);
  }
  if (const TileTokens* const tokens = processor->tile_tokens()) {
    const int32_t tiles = processor->max_tiles();
    max_rows = (1 + tiles) * (max_rows + 2) +
               std::max(tiles - 1, 0) * static_cast<int32_t>(ids.tiles_end.size());
    if (!tokens->number_begin.empty()) {
      max_rows += 2 + static_cast<int32_t>(std::to_string(options.max_images - 1).size());
    }
  }
  const ModelSpec& spec = model.spec();
  ImageInfo info = {.placeholder = std::string(tokenizer ? tokenizer->TokenPiece(id) : ""),
                    .placeholder_id = id,
                    .max_images = options.max_images,
                    .max_tokens = max_rows + processor->max_lines(),
                    .max_bytes = options.max_image_bytes,
                    .max_pixels = options.max_image_pixels,
                    .options = processor->options()};
  info.max_scaled_pixels = info.options.max_pixels.value_or(0);
  const ImageOptions& given = options.image_options;
  if (given.min_pixels) info.options.min_pixels = given.min_pixels;
  if (given.max_pixels) info.options.max_pixels = given.max_pixels;
  if (tokenizer != nullptr && spec.image_mark >= 0) {
    const std::string row = std::exchange(info.placeholder, tokenizer->TokenPiece(spec.image_mark));
    info.placeholder_text = "\n\n" + info.placeholder + row +
                            std::string(tokenizer->TokenPiece(spec.image_end)) + "\n\n";
  }
  if (const TileTokens* const tokens = processor->tile_tokens();
      tokens != nullptr && !tokens->number_begin.empty()) {
    info.number_begin = tokens->number_begin;
    info.placeholder_text = tokens->number_end + info.placeholder;
  }
  return std::make_unique<const ImageInput>(ImageInput::Options{
      .info = std::move(info),
      .processor = std::move(processor),
      .row_token = id,
      .tokens = [&encoder,
                 ids](const PreparedImage& image) { return TokensOf(encoder, image, ids); },
      .rows = [&encoder](const PreparedImage& image) -> Result<int32_t> {
        ASSIGN_OR_RETURN(const ImageLayout layout, LayoutOf(encoder, image, /*has_lines=*/false));
        return static_cast<int32_t>(layout.rows.size());
      }});
}

}  // namespace tokamak
