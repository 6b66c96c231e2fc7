// The options of images as vLLM's clients spell them (mm_processor_kwargs), and what they may be.
#pragma once

#include <string_view>

#include "base/json/json_reader.h"
#include "tokamak/image_options.h"
#include "tokamak/status.h"

namespace tokamak {

// Reads min_pixels and max_pixels, or `size` with shortest_edge and longest_edge, which mean the
// same. If both are there, the former count, as in transformers. Other fields are errors. Absent
// fields: no options.
ImageOptions ReadImageOptions(const JsonReader& fields);

// kInvalidArgument if a model whose images have the options `absent` by default cannot prepare one
// so. `absent` is empty for models whose images have no options, and otherwise complete; an image
// has at most `max_pixels`. Messages begin with `path` and the field.
Status CheckImageOptions(const ImageOptions& options, const ImageOptions& absent,
                         int32_t max_pixels, std::string_view path);

}  // namespace tokamak
