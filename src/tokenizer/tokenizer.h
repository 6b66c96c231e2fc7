// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

struct EncodeOptions {
  bool add_special = true;     // begin- and end-of-text tokens, as the vocabulary wants them
  bool parse_special = false;  // "<|im_start|>" in the text is that token; never for users' text
};

struct DecodeOptions {
  bool skip_special = true;   // control and unknown tokens give no text
  bool continuation = false;  // the text goes on from other text: its first space is real, where
                              // SentencePiece kinds would take it for the one that encoding added
  std::vector<int32_t> shown_special = {};  // skip_special leaves these in all the same
};

// A token with the text it stands for.
struct TokenDescription {
  int32_t id = 0;
  std::string text;   // always UTF-8; a token that ends inside a character shows as U+FFFD
  std::string bytes;  // exact
  bool special = false;
};

// Immutable after Create and safe to use from any number of threads.
class Tokenizer {
 public:
  // The longest text that Encode accepts, in bytes.
  static constexpr size_t kMaxTextBytes = size_t{64} << 20;

  // Errors name what is wrong with the vocabulary: an unknown pre-tokenizer (kUnimplemented), ids
  // out of range, missing merges, malformed charsmap (kInvalidArgument).
  static Result<std::shared_ptr<const Tokenizer>> Create(VocabSpec spec);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Any bytes are accepted: what is not UTF-8 counts as U+FFFD, one per maximal subpart, as
  // Python's bytes.decode("utf-8", errors="replace") has it. Time is O(n log n) in the text's
  // length. kResourceExhausted for a text longer than kMaxTextBytes.
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options = {}) const;

  // The text of the tokens' bytes joined together; bytes that are not UTF-8 become U+FFFD as above.
  // kInvalidArgument for an id outside [0, vocab_size).
  Result<std::string> Decode(std::span<const int32_t> ids, DecodeOptions options = {}) const;

  // The lines of `tokamak tokenize`. kInvalidArgument for an id outside [0, vocab_size).
  Result<std::vector<TokenDescription>> Describe(std::span<const int32_t> ids) const;

  // No Encode of the text gives fewer tokens. Takes a fraction of its time; 0: nothing is known.
  size_t LeastTokens(std::string_view text) const;
  int32_t vocab_size() const;
  // The bytes that a token stands for in text: " the" for "Ġthe", "\n" for "<0x0A>", the name
  // itself for special tokens. Empty for an id outside [0, vocab_size).
  std::string_view TokenPiece(int32_t id) const;
  // The id of the token spelled exactly so in the vocabulary ("<|im_start|>", "Ġthe"), or -1.
  int32_t FindToken(std::string_view spelling) const;

  const SpecialTokenIds& special() const;
  // Control and unknown tokens: those that skip_special leaves out.
  bool IsSpecial(int32_t id) const;
  // Tokens after which generation stops: eos, eot, eom and tokens known by their names.
  bool IsEndOfGeneration(int32_t id) const;
  const std::vector<int32_t>& end_of_generation_ids() const;  // ascending
  bool adds_bos() const;
  // The tokens that EncodeOptions::add_special puts around a text.
  const std::vector<int32_t>& added_before() const;
  const std::vector<int32_t>& added_after() const;
  // Whether decoding a text from its start drops one leading space (SentencePiece kinds).
  bool drops_leading_space() const { return leading_spaces() > 0; }
  // How many spaces it drops.
  size_t leading_spaces() const;
  // TokenPiece of a token that begins a text, before such spaces are dropped.
  std::string FirstPiece(int32_t id) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  // Complete `impl` from its spec: by the kind of vocabulary, or by its pipeline.
  static Status MakeModel(Impl& impl);
  static Status MakePipeline(Impl& impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tokamak
