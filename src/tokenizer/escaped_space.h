// SentencePiece's spelling of a space: ▁ (U+2581).
#pragma once

#include <string_view>

namespace tokamak {

inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";

}  // namespace tokamak
