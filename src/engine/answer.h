// The rules by which answers end: how a token changes an answer.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/text_decoder.h"
#include "engine/token_constraint.h"
#include "tokamak/request.h"

namespace tokamak {

struct TokenEffect {
  bool allowed = true;     // false: the constraint refuses the token, which was not added
  bool end_token = false;  // it is not part of the answer
  std::optional<FinishReason> end = {};
};

// Adds a token to an answer of `before` tokens and to `chunk`, with its text. `last`: the answer
// must not become longer. `sampling`: RequestState's. The decoder and the constraint may be null.
TokenEffect TakeToken(const SamplingParams& sampling, int32_t before, bool last, TokenId token,
                      TextDecoder* decoder, TokenConstraint* constraint, OutputChunk* chunk);

}  // namespace tokamak
