#include "local/image_input.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/byte_count.h"
#include "base/check.h"
#include "base/error.h"
#include "base/random_bits.h"
#include "images/decode.h"
#include "images/image_options.h"
#include "images/placeholders.h"

namespace tokamak {

ImageInput::ImageInput(Options options)
    : options_(std::move(options)),
      secret_{RandomBits(), RandomBits(), RandomBits(), RandomBits()},
      held_bytes_(std::make_shared<std::atomic<int64_t>>(0)) {}

Result<ImageData> ImageInput::Prepare(std::string_view bytes, const ImageOptions& options) const {
  ASSIGN_OR_RETURN(PromptImage prompt, Read(bytes, options, /*salt=*/""));
  std::vector<int32_t> tokens = prompt.place.tokens;
  return ImageData{.prepared = std::make_shared<const PromptImage>(std::move(prompt)),
                   .tokens = std::move(tokens)};
}

Result<PromptImage> ImageInput::Read(std::string_view bytes, ImageOptions options,
                                     std::string_view salt) const {
  const ImageInfo& info = options_.info;
  RETURN_IF_ERROR(CheckImageOptions(options, info.options, info.max_scaled_pixels, "options"));
  if (!options.min_pixels) options.min_pixels = info.options.min_pixels;
  if (!options.max_pixels) options.max_pixels = info.options.max_pixels;
  PreparedImage prepared;
  {
    ASSIGN_OR_RETURN(const Image image,
                     DecodeImage(bytes, {.max_bytes = static_cast<uint64_t>(info.max_bytes),
                                         .max_pixels = info.max_pixels}));
    ASSIGN_OR_RETURN(prepared, options_.processor->PrepareWith(options, image));
  }
  PromptImage prompt;
  ASSIGN_OR_RETURN(prompt.place, options_.tokens(prepared));
  std::vector<PreparedImage> tiles = std::exchange(prepared.tiles, {});
  ASSIGN_OR_RETURN(prompt.parts.emplace_back(), MakePart(std::move(prepared), salt));
  for (PreparedImage& tile : tiles) {
    ASSIGN_OR_RETURN(prompt.parts.emplace_back(), MakePart(std::move(tile), salt));
  }
  return prompt;
}

Result<PromptImage::Part> ImageInput::MakePart(PreparedImage prepared,
                                               std::string_view salt) const {
  ASSIGN_OR_RETURN(const int32_t num_rows, options_.rows(prepared));
  CHECK(num_rows > 0);
  PromptImage::Part part{.content = ContentDigestOf(prepared)};
  ASSIGN_OR_RETURN(part.image, Hold({.id = IdOf(part.content, salt),
                                     .shape = std::move(prepared.shape),
                                     .grid_height = prepared.grid_height,
                                     .grid_width = prepared.grid_width,
                                     .image_height = prepared.image_height,
                                     .image_width = prepared.image_width,
                                     .num_rows = num_rows,
                                     .values = std::move(prepared.values)}));
  return part;
}

Result<PromptImage> ImageInput::Salted(PromptImage prepared, std::string_view salt) const {
  if (salt.empty()) return prepared;
  for (PromptImage::Part& part : prepared.parts) {
    EncodeImage renamed = *part.image;
    renamed.id = IdOf(part.content, salt);
    ASSIGN_OR_RETURN(part.image, Hold(std::move(renamed)));
  }
  return prepared;
}

Result<std::shared_ptr<const EncodeImage>> ImageInput::Hold(EncodeImage image) const {
  const auto bytes = static_cast<int64_t>(image.values.size() * sizeof(float));
  const int64_t before = held_bytes_->fetch_add(bytes);
  if (before > 0 && before + bytes > options_.max_held_bytes) {
    held_bytes_->fetch_sub(bytes);
    return Unavailable("the images of waiting and running requests take {}, of at most {}",
                       ByteCount(before), ByteCount(options_.max_held_bytes));
  }
  return std::shared_ptr<const EncodeImage>(new EncodeImage(std::move(image)),
                                            [bytes, count = held_bytes_](const EncodeImage* p) {
                                              delete p;
                                              count->fetch_sub(bytes);
                                            });
}

ImageId ImageInput::IdOf(const ContentDigest& content, std::string_view salt) const {
  const ContentDigest digest =
      Sha256({{reinterpret_cast<const char*>(secret_.data()), sizeof(secret_)},
              {reinterpret_cast<const char*>(content.data()), content.size()},
              salt});
  ImageId id = 0;
  std::memcpy(&id, digest.data(), sizeof(id));
  return std::max<ImageId>(id, 1);
}

Result<std::vector<ArrivalImage>> ImageInput::Place(const std::vector<ImageData>& images,
                                                    std::string_view salt,
                                                    std::vector<int32_t>& prompt) const {
  const ImageInfo& info = options_.info;
  if (images.size() > static_cast<size_t>(info.max_images)) {
    return InvalidArgument("images: a prompt may have {}, got {}", info.max_images, images.size());
  }
  RETURN_IF_ERROR(CheckPlaceholders(info, images.size(), prompt).WithContext("images"));
  std::vector<PromptImage> read;
  for (size_t i = 0; i < images.size(); ++i) {
    const ImageData& given = images[i];
    Result<PromptImage> image =
        given.prepared ? Salted(*given.prepared, salt) : Read(given.bytes, given.options, salt);
    if (!image.ok()) return image.status().WithContext(fmt::format("images[{}]", i));
    read.push_back(*std::move(image));
  }
  std::vector<std::span<const int32_t>> tokens;
  for (const PromptImage& image : read) tokens.emplace_back(image.place.tokens);
  const std::vector<int32_t> positions = ExpandPlaceholders(info.placeholder_id, tokens, prompt);
  std::vector<ArrivalImage> placed;
  for (size_t i = 0; i < read.size(); ++i) AppendSpans(read[i], positions[i], placed);
  return placed;
}

void ImageInput::AppendSpans(const PromptImage& image, int32_t position,
                             std::vector<ArrivalImage>& placed) const {
  const std::vector<int32_t>& tokens = image.place.tokens;
  const auto is_row = [this](int32_t token) { return token == options_.row_token; };
  auto part = image.parts.begin();
  int32_t first_row = 0;
  for (auto first = std::find_if(tokens.begin(), tokens.end(), is_row); first != tokens.end();) {
    const auto end = std::find_if_not(first, tokens.end(), is_row);
    CHECK(part != image.parts.end());
    placed.push_back({.span = {.position = position + static_cast<int32_t>(first - tokens.begin()),
                               .image = part->image->id,
                               .first_row = first_row,
                               .num_rows = static_cast<int32_t>(end - first),
                               .grid_width = image.place.grid_width},
                      .image = part->image});
    first_row += placed.back().span.num_rows;
    if (first_row == part->image->num_rows) {
      ++part;
      first_row = 0;
    }
    first = std::find_if(end, tokens.end(), is_row);
  }
}

}  // namespace tokamak
