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

// The tokens of a prompt that an image becomes.
struct ImageTokens {
  std::vector<int32_t> tokens = {};  // ImageInput::Options::row_token once per row, and others
  int32_t grid_width = 0;            // ImageSpan::grid_width
};

// An image as the engine takes it.
struct PromptImage {
  // The image, or the image and its tiles, which are images to the engine.
  struct Part {
    std::shared_ptr<const EncodeImage> image = {};  // by its name in requests without a salt
    ContentDigest content = {};
  };
  std::vector<Part> parts = {};  // their rows follow each other
  ImageTokens place = {};
};

// Thread-safe.
class ImageInput {
 public:
  struct Options {
    ImageInfo info;
    std::unique_ptr<const ImageProcessor> processor;
    int32_t row_token = 0;  // in whose place the rows of images come
    // Returns what an image becomes with its tiles.
    std::function<Result<ImageTokens>(const PreparedImage&)> tokens;
    // Returns how many rows an image, or a tile, becomes; at least one.
    std::function<Result<int32_t>(const PreparedImage&)> rows;
    // Limit on the values of all images that requests hold. One image may always exist.
    int64_t max_held_bytes = int64_t{1} << 30;
  };
  explicit ImageInput(Options options);

  const ImageInfo& info() const { return options_.info; }

  // Engine::PrepareImage.
  Result<ImageData> Prepare(std::string_view bytes, const ImageOptions& options = {}) const;
  // Puts the tokens of images in the place of their placeholders. Returns the runs of rows among
  // them, of which an image may have several. Equal images get equal ids if the salts are equal.
  // kInvalidArgument, with the numbers, if there are more or fewer images than placeholders, or
  // more than a prompt may have.
  Result<std::vector<ArrivalImage>> Place(const std::vector<ImageData>& images,
                                          std::string_view salt,
                                          std::vector<int32_t>& prompt) const;

 private:
  Result<PromptImage> Read(std::string_view bytes, ImageOptions options,
                           std::string_view salt) const;
  Result<PromptImage::Part> MakePart(PreparedImage prepared, std::string_view salt) const;
  Result<PromptImage> Salted(PromptImage prepared, std::string_view salt) const;
  Result<std::shared_ptr<const EncodeImage>> Hold(EncodeImage image) const;
  ImageId IdOf(const ContentDigest& content, std::string_view salt) const;
  // Appends the spans of an image whose tokens begin at `position`.
  void AppendSpans(const PromptImage& image, int32_t position,
                   std::vector<ArrivalImage>& placed) const;

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
