// The text that a grammar forces, as tokens that a model would probably write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "local/structured_output.h"
#include "step/step_input.h"

namespace tokamak {

// Returns the tokens of a text within an answer; none if they do not spell it.
std::vector<TokenId> TokensWithin(std::string_view text, const ConstraintTokens& tokens);

// See TokenConstraint::ForcedTokens. `text(n)` returns the first n bytes of the text, with marks
// for special tokens (GrammarMark), or all of it.
std::vector<TokenId> TokensOfForced(FunctionRef<std::string(size_t)> text, int32_t most,
                                    const ConstraintTokens& tokens);

}  // namespace tokamak
