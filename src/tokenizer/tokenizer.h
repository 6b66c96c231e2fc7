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
  bool add_special = true;     // add begin- and end-of-text tokens if the vocabulary wants them
  bool parse_special = false;  // "<|im_start|>" in the text is that token; never for users' text
};

struct DecodeOptions {
  bool skip_special = true;  // control and unknown tokens give no text
  // The text continues other text, so a leading space is kept. SentencePiece kinds would otherwise
  // drop it as added by encoding.
  bool continuation = false;
  std::vector<int32_t> shown_special = {};  // not skipped by skip_special
};

// A token and its text.
struct TokenDescription {
  int32_t id = 0;
  std::string text;   // UTF-8; a partial character shows as U+FFFD
  std::string bytes;  // exact
  bool special = false;
};

// Immutable and thread-safe.
class Tokenizer {
 public:
  // Longest text that Encode accepts, in bytes.
  static constexpr size_t kMaxTextBytes = size_t{64} << 20;

  // Errors name the defect: kUnimplemented for a pattern or decoder that has no equivalent,
  // kInvalidArgument for ids out of range, impossible merges or a malformed charsmap.
  static Result<std::shared_ptr<const Tokenizer>> Create(VocabSpec spec);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Accepts any bytes: invalid UTF-8 becomes U+FFFD, one per maximal subpart, as in Python's
  // bytes.decode("utf-8", errors="replace"). O(n log n). kResourceExhausted if `text` is longer
  // than kMaxTextBytes.
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options = {}) const;

  // Joins the tokens' bytes; invalid UTF-8 becomes U+FFFD as above. kInvalidArgument for an id
  // outside [0, vocab_size).
  Result<std::string> Decode(std::span<const int32_t> ids, DecodeOptions options = {}) const;

  // The lines of `tokamak tokenize`. kInvalidArgument for an id outside [0, vocab_size).
  Result<std::vector<TokenDescription>> Describe(std::span<const int32_t> ids) const;

  // A lower bound for the number of tokens from Encode, at a fraction of its cost. 0: unknown.
  size_t LeastTokens(std::string_view text) const;
  int32_t vocab_size() const;
  // The bytes of a token in text: " the" for "Ġthe", "\n" for "<0x0A>", the name itself for special
  // tokens. Empty for an id outside [0, vocab_size).
  std::string_view TokenPiece(int32_t id) const;
  // The id of the token with exactly this spelling ("<|im_start|>", "Ġthe"), or -1.
  int32_t FindToken(std::string_view spelling) const;

  const SpecialTokenIds& special() const;
  // Whether the token is a control or unknown token, which skip_special leaves out.
  bool IsSpecial(int32_t id) const;
  // Whether generation stops after this token: eos, eot, eom and other end tokens known by name.
  bool IsEndOfGeneration(int32_t id) const;
  const std::vector<int32_t>& end_of_generation_ids() const;  // ascending
  bool adds_bos() const;
  // The tokens that EncodeOptions::add_special puts around a text.
  const std::vector<int32_t>& added_before() const;
  const std::vector<int32_t>& added_after() const;
  // Whether decoding drops leading spaces of a text (SentencePiece kinds).
  bool drops_leading_space() const { return leading_spaces() > 0; }
  // The number of leading spaces that decoding drops.
  size_t leading_spaces() const;
  // TokenPiece of a token that begins a text, before leading spaces are dropped.
  std::string FirstPiece(int32_t id) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tokamak
