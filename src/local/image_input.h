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

#include "images/content_digest.h"
#include "images/processor.h"
#include "tokamak/model_info.h"
#include "tokamak/request.h"

namespace tokamak {

// An image as the engine takes it.
struct PromptImage {
  PreparedImage image;
  ContentDigest content = {};
  int32_t num_rows = 0;  // for the language model
};

// An image at its place in an expanded prompt.
struct PlacedImage {
  int32_t position = 0;  // of its first row
  uint64_t id = 0;       // equal for equal content and salt; never 0
  std::shared_ptr<const PromptImage> image = {};
};

// Thread-safe.
class ImageInput {
 public:
  struct Options {
    ImageInfo info;
    std::unique_ptr<const ImageProcessor> processor;
    // Returns how many rows of the prompt an image becomes, at least one.
    std::function<Result<int32_t>(const PreparedImage&)> num_rows;
    // Limit on the values of all images that requests hold. One image may always exist.
    int64_t max_held_bytes = int64_t{1} << 30;
  };
  explicit ImageInput(Options options);

  // Engine::PrepareImage.
  Result<ImageData> Prepare(std::string_view bytes) const;
  // Repeats each placeholder in the prompt once per row of its image. kInvalidArgument, with the
  // numbers, if there are more or fewer images than placeholders, or more than a prompt may have.
  Result<std::vector<PlacedImage>> Place(const std::vector<ImageData>& images,
                                         std::string_view salt, std::vector<int32_t>& prompt) const;

 private:
  Result<std::shared_ptr<const PromptImage>> Hold(PromptImage image) const;
  uint64_t IdOf(const ContentDigest& content, std::string_view salt) const;

  const Options options_;
  // Part of every id, so that nobody can make two images that have the same.
  const std::array<uint64_t, 4> secret_;
  // Bytes of values that exist. Images may outlive this object.
  const std::shared_ptr<std::atomic<int64_t>> held_bytes_;
};

}  // namespace tokamak
