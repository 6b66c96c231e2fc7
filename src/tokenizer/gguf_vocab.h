// A vocabulary as GGUF files store it (load/vocab_from_gguf.h reads it).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

struct GgufVocab {
  TokenizerKind kind = TokenizerKind::kBpe;
  std::string pre_tokenizer;           // kBpe: a name in pretokenizer_table.cc, e.g. "smollm"
  std::vector<std::string> tokens;     // by id, in the kind's spelling (GPT-2's alphabet, ▁)
  std::vector<float> scores;           // by id; empty: all 0
  std::vector<TokenType> types;        // by id; empty: all kNormal
  std::vector<std::string> merges;     // kBpe: "left right", best first
  std::vector<int32_t> lstrip_tokens;  // also take the white space before them
  std::vector<int32_t> rstrip_tokens;  // also take the white space after them
  SpecialTokenIds special;
  std::vector<int32_t> end_tokens;  // additional tokens that end generation
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;          // SentencePiece kinds: put a space before the text
  bool remove_extra_whitespaces = false;  // kUnigram: merge runs of spaces
  bool lowercase = true;                  // kWordPiece
  bool strip_accents = true;              // kWordPiece
  std::string precompiled_charsmap;       // kUnigram: SentencePiece's normalizer
};

// Returns the vocabulary with its pipeline, and with types, roles and end tokens completed by known
// names. kUnimplemented for an unknown pre-tokenizer; kInvalidArgument for types or scores that are
// not one per token, missing or malformed merges, and a begin or end token that is wanted but
// missing.
Result<VocabSpec> MakeGgufVocab(GgufVocab vocab);

}  // namespace tokamak
