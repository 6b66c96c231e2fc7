// The places of images in a prompt. Each is one placeholder token, which becomes the tokens of the
// image: one for each of its rows for the language model, and others that surround them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tokamak/model_info.h"
#include "tokamak/status.h"

namespace tokamak {

// A text with images, with placeholder_text in the place of each placeholder.
std::string WriteOutPlaceholders(const ImageInfo& info, std::string text);

// kInvalidArgument, with the numbers, unless the prompt has as many placeholders as images.
Status CheckPlaceholders(const ImageInfo& info, size_t num_images, std::span<const int32_t> prompt);

// Puts images[i] in the place of the i-th placeholder. Returns the position of each image's first
// token. Requires one image per placeholder.
std::vector<int32_t> ExpandPlaceholders(int32_t placeholder_id,
                                        std::span<const std::span<const int32_t>> images,
                                        std::vector<int32_t>& prompt);

}  // namespace tokamak
