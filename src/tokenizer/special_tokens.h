// Tokens with a role.
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/vocab.h"

namespace tokamak {

// Completes what checkpoints leave out, by known token names: end of turn, end of message, and the
// type of special tokens stored as normal ones ("<|im_end|>"). Requires one type per token. Returns
// the ids that end generation, ascending.
std::vector<int32_t> ResolveSpecialTokens(VocabSpec& spec);

}  // namespace tokamak
