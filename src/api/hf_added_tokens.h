// Tokens that a Hugging Face directory adds to a vocabulary's own.
#pragma once

#include <string>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"
#include "weights/config.h"

namespace tokamak {

// Those of tokenizer_config.json (added_tokens_decoder) or else of added_tokens.json: found in text
// before anything else, special ones only where the caller allows it. They extend the vocabulary,
// give names to its special and unused tokens, or say more of a token that it has; another name for
// an ordinary token is kInvalidArgument. `config` and `map` are tokenizer_config.json and
// special_tokens_map.json. Errors name the file and the field.
Status ApplyHfAddedTokens(const std::string& folder, const ConfigValue& config,
                          const ConfigValue& map, VocabSpec& vocab);

}  // namespace tokamak
