#pragma once

#include <cstdint>
#include <vector>

namespace tokamak {

// An upright image, 8 bits per channel.
struct Image {
  int32_t width = 0, height = 0;
  std::vector<uint8_t> rgb = {};  // [height, width, 3]
};

}  // namespace tokamak
