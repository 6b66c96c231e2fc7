// SentencePiece's model files (tokenizer.model, spiece.model): the protobuf message ModelProto.
// Format: sentencepiece src/sentencepiece_model.proto.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Returns the vocabulary and pipeline of a BPE or Unigram model. `special` has the tokens that the
// model names. add_bos is set if there is a begin token, as the families with such files expect.
// Control tokens are found in text only if the caller allows it, user-defined ones always.
//
// kUnimplemented for other types (word, char), decoding rules, and unknown normalizer settings;
// kInvalidArgument for malformed files. Messages begin with `source` and the field:
// "tokenizer.model: pieces[3].type: ...".
Result<VocabSpec> ParseSentencePieceModel(std::string_view bytes, const std::string& source);

// Whether `bytes` begin like such a file: with a piece.
bool IsSentencePieceModel(std::string_view bytes);

}  // namespace tokamak
