// The images of prompts: decoded, prepared for the model, and put where their placeholders are.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/arrival.h"
#include "images/content_digest.h"
#include "images/processor.h"
#include "tokamak/model_info.h"
#include "tokamak/request.h"

namespace tokamak {

// An image as the engine takes it.
struct PromptImage {
  std::shared_ptr<const EncodeImage> image = {};  // by its name in requests without a salt
  int32_t grid_width = 0;                         // ImageSpan::grid_width
  ContentDigest content = {};
};

// Thread-safe.
class ImageInput {
 public:
  struct Options {
    ImageInfo info;
    std::unique_ptr<const ImageProcessor> processor;
    // Returns how many rows of the prompt an image becomes, at least one, and their grid.
    std::function<Result<ImageSpan>(const PreparedImage&)> rows;
    // Limit on the values of all images that requests hold. One image may always exist.
    int64_t max_held_bytes = int64_t{1} << 30;
  };
  explicit ImageInput(Options options);

  const ImageInfo& info() const { return options_.info; }

  // Engine::PrepareImage.
  Result<ImageData> Prepare(std::string_view bytes) const;
  // Repeats each placeholder in the prompt once per row of its image. Equal images get equal ids if
  // the salts are equal. kInvalidArgument, with the numbers, if there are more or fewer images than
  // placeholders, or more than a prompt may have.
  Result<std::vector<ArrivalImage>> Place(const std::vector<ImageData>& images,
                                          std::string_view salt,
                                          std::vector<int32_t>& prompt) const;

 private:
  Result<PromptImage> Read(std::string_view bytes, std::string_view salt) const;
  Result<PromptImage> Salted(PromptImage prepared, std::string_view salt) const;
  Result<std::shared_ptr<const EncodeImage>> Hold(EncodeImage image) const;
  ImageId IdOf(const ContentDigest& content, std::string_view salt) const;

  const Options options_;
  // Part of every id. An id has only 64 bits, so without this a client could search, alone and at
  // leisure, for an image that has the id of someone else's. With a secret that no process but this
  // one knows, and ids that no response shows, it can only send images and hope: each one meets one
  // of n cached ids with a probability of n / 2^64.
  const std::array<uint64_t, 4> secret_;
  // Bytes of values that exist. Images may outlive this object.
  const std::shared_ptr<std::atomic<int64_t>> held_bytes_;
};

}  // namespace tokamak
