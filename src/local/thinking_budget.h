// Bounds the tokens of a model's reasoning.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/token_constraint.h"
#include "local/structured_output.h"
#include "tokamak/sampling_params.h"
#include "tokamak/status.h"

namespace tokamak {

// Lets an answer begin with at most `budget` tokens of reasoning, between `marks.open` (or the
// beginning, with marks.begun) and `marks.close`. Then the tokens of marks.close are forced. A
// character that the last token has not finished may be finished first, with at most three more
// tokens. `answer` decides about everything else; null: all tokens may come. kUnimplemented if no
// tokens spell marks.close.
Result<std::unique_ptr<TokenConstraint>> MakeThinkingBudget(
    const StructuredOutput::Reasoning& marks, int32_t budget,
    std::shared_ptr<const ConstraintTokens> tokens, std::unique_ptr<TokenConstraint> answer);

}  // namespace tokamak
