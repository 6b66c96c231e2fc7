// The places of images in a prompt. Each is one placeholder token, which becomes as many as the
// image has rows for the language model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tokamak/model_info.h"
#include "tokamak/status.h"

namespace tokamak {

// kInvalidArgument, with the numbers, unless the prompt has as many placeholders as images.
Status CheckPlaceholders(const ImageInfo& info, size_t num_images, std::span<const int32_t> prompt);

// Repeats the i-th placeholder rows[i] times. Returns the position of each image's first row.
// Requires one entry of `rows` per placeholder.
std::vector<int32_t> ExpandPlaceholders(int32_t placeholder_id, std::span<const int32_t> rows,
                                        std::vector<int32_t>& prompt);

}  // namespace tokamak
