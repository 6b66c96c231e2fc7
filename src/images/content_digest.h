#pragma once

#include <array>
#include <cstdint>

#include "images/processor.h"

namespace tokamak {

// SHA-256 of all that decides which rows an image becomes.
using ContentDigest = std::array<uint8_t, 32>;

ContentDigest ContentDigestOf(const PreparedImage& image);

}  // namespace tokamak
