// A constraint for models that reason before they answer: the reasoning is free.
#pragma once

#include <memory>

#include "engine/token_constraint.h"
#include "local/structured_output.h"
#include "tokamak/sampling_params.h"

namespace tokamak {

// Text from `reasoning.open` to `reasoning.close` at the start of an answer may be anything but end
// tokens; up to two line breaks may follow it, and then `answer` decides. Without `open` at the
// start, `answer` decides from there.
std::unique_ptr<TokenConstraint> MakeReasoningConstraint(
    const StructuredOutput::Reasoning& reasoning, std::shared_ptr<const ConstraintTokens> tokens,
    std::unique_ptr<TokenConstraint> answer);

}  // namespace tokamak
