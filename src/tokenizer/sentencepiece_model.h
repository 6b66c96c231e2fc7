// SentencePiece's model files (tokenizer.model, spiece.model): a protobuf message, ModelProto.
// Format: sentencepiece src/sentencepiece_model.proto.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// The vocabulary and the pipeline of a model of the types BPE and Unigram. `special` has the tokens
// that the model names; with add_bos when there is a begin token, as the families that use such
// files have it. Control tokens are found in text only where the caller allows it, user-defined
// ones always.
//
// Other types (word, char), rules for decoding, and settings of the normalizer that are not known
// here are kUnimplemented; what is malformed is kInvalidArgument. Messages begin with `source` and
// the field: "tokenizer.model: pieces[3].type: ...".
Result<VocabSpec> ParseSentencePieceModel(std::string_view bytes, const std::string& source);

// Whether `bytes` begin as such a file does: with a piece.
bool IsSentencePieceModel(std::string_view bytes);

}  // namespace tokamak
