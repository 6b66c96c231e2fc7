// Tokens that a Hugging Face directory adds to its vocabulary.
#pragma once

#include <string>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"
#include "weights/config.h"

namespace tokamak {

// Adds the tokens of tokenizer_config.json (added_tokens_decoder), or else of added_tokens.json.
// They are found in text before anything else, special ones only if the caller allows it. They
// extend the vocabulary, name its special and unused tokens, or describe a token it has; renaming
// an ordinary token is kInvalidArgument. `config` and `map` are tokenizer_config.json and
// special_tokens_map.json. Errors name the file and the field.
Status ApplyHfAddedTokens(const std::string& folder, const JsonValue& config, const JsonValue& map,
                          VocabSpec& vocab);

}  // namespace tokamak
