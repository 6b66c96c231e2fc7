// A constraint for answers that are either tool calls or a text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/token_constraint.h"
#include "local/structured_output.h"

namespace tokamak {

// Allows what `calls` or `text` allows. No text may begin with one of `begins`, which are not
// empty, so that whoever reads the answer can tell it from calls.
std::unique_ptr<TokenConstraint> MakeCallsConstraint(
    std::unique_ptr<TokenConstraint> calls, std::unique_ptr<TokenConstraint> text,
    std::shared_ptr<const std::vector<std::string>> begins,
    std::shared_ptr<const ConstraintTokens> tokens);

}  // namespace tokamak
