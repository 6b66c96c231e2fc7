// A constraint for models that reason before they answer: the reasoning is free.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/token_constraint.h"
#include "local/structured_output.h"
#include "tokamak/sampling_params.h"

namespace tokamak {

// Returns the tokens that contain `close` and more than two line breaks after it, in one scan of
// the vocabulary.
std::vector<TokenId> TokensAcross(std::string_view close, const ConstraintTokens& tokens);

// Text from `reasoning.open` to `reasoning.close` at the start of an answer may be anything but end
// tokens; up to two line breaks may follow it, and then an answer of `make_answer` decides. Without
// `open` at the start, an answer decides from there. `across`: TokensAcross of `reasoning.close`.
std::unique_ptr<TokenConstraint> MakeReasoningConstraint(
    const StructuredOutput::Reasoning& reasoning, std::shared_ptr<const ConstraintTokens> tokens,
    std::shared_ptr<const std::vector<TokenId>> across,
    std::function<std::unique_ptr<TokenConstraint>()> make_answer);

}  // namespace tokamak
