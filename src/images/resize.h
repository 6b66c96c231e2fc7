// Resizes as torchvision does with antialias=True on uint8 tensors, which is what the image
// processors of transformers use by default. The results are the same bits; Pillow's differ by 1 to
// 3 levels.
#pragma once

#include <cstdint>

#include "images/image.h"

namespace tokamak {

enum class Resampling { kBilinear, kBicubic };

// Requires a non-empty image and positive sizes. Takes width * image.height * 3 bytes besides the
// result.
Image Resize(const Image& image, int32_t width, int32_t height, Resampling resampling);

}  // namespace tokamak
