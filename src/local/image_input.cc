#include "local/image_input.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/byte_count.h"
#include "base/check.h"
#include "base/error.h"
#include "base/random_bits.h"
#include "images/decode.h"
#include "images/placeholders.h"

namespace tokamak {

ImageInput::ImageInput(Options options)
    : options_(std::move(options)),
      secret_{RandomBits(), RandomBits(), RandomBits(), RandomBits()},
      held_bytes_(std::make_shared<std::atomic<int64_t>>(0)) {}

Result<ImageData> ImageInput::Prepare(std::string_view bytes) const {
  const ImageInfo& info = options_.info;
  PromptImage prompt;
  {
    ASSIGN_OR_RETURN(const Image image,
                     DecodeImage(bytes, {.max_bytes = static_cast<uint64_t>(info.max_bytes),
                                         .max_pixels = info.max_pixels}));
    ASSIGN_OR_RETURN(prompt.image, options_.processor->Prepare(image));
  }
  ASSIGN_OR_RETURN(prompt.num_rows, options_.num_rows(prompt.image));
  CHECK(prompt.num_rows > 0);
  prompt.content = ContentDigestOf(prompt.image);
  const int32_t num_tokens = prompt.num_rows;
  ASSIGN_OR_RETURN(auto held, Hold(std::move(prompt)));
  return ImageData{.prepared = std::move(held), .num_tokens = num_tokens};
}

Result<std::shared_ptr<const PromptImage>> ImageInput::Hold(PromptImage image) const {
  const auto bytes = static_cast<int64_t>(image.image.values.size() * sizeof(float));
  const int64_t before = held_bytes_->fetch_add(bytes);
  if (before > 0 && before + bytes > options_.max_held_bytes) {
    held_bytes_->fetch_sub(bytes);
    return Unavailable("the images of waiting and running requests take {}, of at most {}",
                       ByteCount(before), ByteCount(options_.max_held_bytes));
  }
  return std::shared_ptr<const PromptImage>(new PromptImage(std::move(image)),
                                            [bytes, count = held_bytes_](const PromptImage* p) {
                                              delete p;
                                              count->fetch_sub(bytes);
                                            });
}

uint64_t ImageInput::IdOf(const ContentDigest& content, std::string_view salt) const {
  const ContentDigest digest =
      Sha256({{reinterpret_cast<const char*>(secret_.data()), sizeof(secret_)},
              {reinterpret_cast<const char*>(content.data()), content.size()},
              salt});
  uint64_t id = 0;
  std::memcpy(&id, digest.data(), sizeof(id));
  return std::max<uint64_t>(id, 1);
}

Result<std::vector<PlacedImage>> ImageInput::Place(const std::vector<ImageData>& images,
                                                   std::string_view salt,
                                                   std::vector<int32_t>& prompt) const {
  const ImageInfo& info = options_.info;
  if (images.size() > static_cast<size_t>(info.max_images)) {
    return InvalidArgument("images: a prompt may have {}, got {}", info.max_images, images.size());
  }
  RETURN_IF_ERROR(CheckPlaceholders(info, images.size(), prompt).WithContext("images"));
  std::vector<PlacedImage> placed;
  std::vector<int32_t> rows;
  for (const ImageData& given : images) {
    std::shared_ptr<const PromptImage> image = given.prepared;
    if (image == nullptr) {
      Result<ImageData> prepared = Prepare(given.bytes);
      if (!prepared.ok()) {
        return prepared.status().WithContext(fmt::format("images[{}]", rows.size()));
      }
      image = std::move(prepared->prepared);
    }
    rows.push_back(image->num_rows);
    placed.push_back({.id = IdOf(image->content, salt), .image = std::move(image)});
  }
  const std::vector<int32_t> positions = ExpandPlaceholders(info.placeholder_id, rows, prompt);
  for (size_t i = 0; i < placed.size(); ++i) placed[i].position = positions[i];
  return placed;
}

}  // namespace tokamak
