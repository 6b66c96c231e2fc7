// VocabSpec is a plain value with everything that defines a tokenizer. It comes from a weight
// format (gguf_vocab.h) or a tokenizer's own file (tokenizer_file.h). Tokenizer::Create checks it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/pipeline_spec.h"

namespace tokamak {

enum class TokenizerKind {
  kBpe,  // rank-ordered merges over bytes or characters (GPT-2, Llama 3, Qwen, Gemma 4)
  kSentencePieceBpe,  // merges by token score, byte fallback (Llama 1/2, Mistral, Phi-3)
  kUnigram,           // most likely segmentation (T5, XLM-R)
  kWordPiece,         // greedy longest match within words (BERT)
};

// Numbered as tokenizer.ggml.token_type in GGUF.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // <s>, <|im_end|>: found in text only with parse_special
  kUserDefined = 4,  // added tokens: found in every text before anything else
  kUnused = 5,
  kByte = 6,  // a single byte: "<0x0A>"
};

// Ids of tokens with a role; -1: none.
struct SpecialTokenIds {
  int32_t bos = -1;
  int32_t eos = -1;
  int32_t eot = -1;  // end of turn
  int32_t eom = -1;  // end of message
  int32_t unk = -1;
  int32_t sep = -1;
  int32_t pad = -1;
  int32_t cls = -1;
  int32_t mask = -1;
};

struct VocabSpec {
  TokenizerKind kind = TokenizerKind::kBpe;
  std::vector<std::string> tokens;  // by id, in the kind's spelling (GPT-2's alphabet, ▁)
  std::vector<TokenType> types;     // by id
  SpecialTokenIds special;
  std::vector<int32_t> end_tokens;  // additional tokens that end generation
  // If no other file says what surrounds a text, it begins with bos.
  bool add_bos = false;
  PipelineSpec pipeline;  // how to encode and decode
};

}  // namespace tokamak
