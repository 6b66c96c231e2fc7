// LLaVA-NeXT: which features of an image's tiles show the image.
#pragma once

#include <cstdint>

namespace tokamak {

// Rows and columns of a grid of features.
struct FeatureRegion {
  int32_t top = 0, left = 0, height = 0, width = 0;
};

// The part of a grid of features, [grid_height, grid_width] over all tiles, that shows the image
// rather than the padding around it. Requires positive sizes.
FeatureRegion UnpaddedFeatures(int32_t image_height, int32_t image_width, int32_t grid_height,
                               int32_t grid_width);

}  // namespace tokamak
