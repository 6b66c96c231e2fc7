// Encodes images without a runner. For tests.
#pragma once

#include <cstdint>
#include <vector>

#include "models/image_encoder.h"
#include "models/model.h"
#include "models/testing/golden.h"
#include "models/testing/harness.h"
#include "ops/ops.h"

namespace tokamak::testing {

// The pixel values of goldens: from -2 to 2, by the formula of make_vision_goldens.py.
std::vector<float> PixelValues(size_t count, uint32_t seed);

using ImageRows = std::vector<std::vector<float>>;  // [rows][hidden_size]

// The rows of one image. CHECKs that the encoder takes it.
ImageRows EncodeImage(const ImageEncoder& encoder, Ops& ops, const ImageView& image,
                      DType kv_dtype = DType::kF32);

// Adds the rows and grids of a golden's images, if it has any.
HarnessOptions WithImages(HarnessOptions options, const Model& model, Ops& ops,
                          const TinyGolden& golden);

}  // namespace tokamak::testing
