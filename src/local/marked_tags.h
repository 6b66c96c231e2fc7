// A constraint for answers that are one tag whose beginning is written with special tokens, such as
// the header of a Harmony message. Grammars know only text.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/token_constraint.h"
#include "local/structured_output.h"
#include "tokamak/sampling_params.h"

namespace tokamak {

// The beginning of a tag: special tokens and the text between them.
struct MarkedBegin {
  struct Piece {
    TokenId special = -1;   // -1: text
    std::string text = {};  // not empty unless the piece is a token
  };
  std::vector<Piece> pieces;  // the last one is a special token
};

// The beginnings of the output's tags, if its answers are one tag and all beginnings end with a
// special token. Empty otherwise.
std::vector<MarkedBegin> MarkedBegins(const StructuredOutput& output,
                                      const ConstraintTokens& tokens);

// Allows one of `begins`; then a constraint from `make_content`, for the index of that one,
// decides.
std::unique_ptr<TokenConstraint> MakeMarkedConstraint(
    std::shared_ptr<const std::vector<MarkedBegin>> begins,
    std::shared_ptr<const ConstraintTokens> tokens,
    std::function<std::unique_ptr<TokenConstraint>(size_t)> make_content);

}  // namespace tokamak
