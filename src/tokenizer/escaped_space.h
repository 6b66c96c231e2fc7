// SentencePiece's spelling of a space: ▁ (U+2581).
#pragma once

#include <string_view>
#include <vector>

#include "tokenizer/pipeline_spec.h"

namespace tokamak {

inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";

// Decodes ▁ as a space. `drop_first`: a text loses one space at its start, which encoding added.
std::vector<DecoderStep> UnescapeSpaces(bool drop_first);

}  // namespace tokamak
