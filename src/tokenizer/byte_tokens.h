// SentencePiece's tokens of single bytes: "<0x0A>".
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tokenizer/vocab.h"

namespace tokamak {

// Returns the byte, or -1 if `text` does not spell one.
int ParseByteToken(std::string_view text);

// The byte tokens of a vocabulary, for characters that no other token covers.
class ByteTokens {
 public:
  // There are none if the pipeline does not want them. They are recognized by their type or, as in
  // tokenizer.json, if no token has this type, by their spelling.
  explicit ByteTokens(const VocabSpec& spec);

  // The token of `byte`, or -1.
  int32_t operator[](char byte) const { return ids_[static_cast<uint8_t>(byte)]; }
  // Whether each byte of `text` has a token.
  bool Cover(std::string_view text) const;
  // Whether every text is covered.
  bool complete() const;

 private:
  std::array<int32_t, 256> ids_;
};

}  // namespace tokamak
