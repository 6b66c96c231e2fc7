// VocabSpec is a plain value with everything that defines a tokenizer. It comes from a weight
// format (GGUF: load/vocab_from_gguf.h) or a tokenizer's own file (tokenizer_file.h).
// Tokenizer::Create checks it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tokamak {

struct PipelineSpec;  // tokenizer/pipeline_spec.h

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
  // How to encode and decode, from a tokenizer's own file. If set, it replaces the fields above for
  // merges, scores, stripping, spaces, case and the tokens around a text.
  std::shared_ptr<PipelineSpec> pipeline;
};

}  // namespace tokamak
