#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "images/processor.h"

namespace tokamak {

using ContentDigest = std::array<uint8_t, 32>;

// SHA-256 of the parts, one after the other.
ContentDigest Sha256(std::initializer_list<std::string_view> parts);

// SHA-256 of all that decides which rows an image becomes.
ContentDigest ContentDigestOf(const PreparedImage& image);

}  // namespace tokamak
