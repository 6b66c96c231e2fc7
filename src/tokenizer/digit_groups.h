// Splits numbers into groups of three digits.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/function_ref.h"
#include "tokenizer/pipeline_spec.h"

namespace tokamak {

// Cuts `text` as a step of one of the kinds of digit groups says. Calls `emit` with the begin and
// end of each part, in order. O(text).
void SplitDigitGroups(PreTokenizerStep::Kind kind, std::string_view text,
                      FunctionRef<void(size_t, size_t)> emit);

}  // namespace tokamak
