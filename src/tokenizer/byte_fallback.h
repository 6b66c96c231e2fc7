// Tokens for characters that no token covers: byte tokens, or the unknown token.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/byte_token.h"
#include "tokenizer/vocab.h"

namespace tokamak {

class ByteFallback {
 public:
  // `unk` may be -1: there is no unknown token.
  ByteFallback(const VocabSpec& spec, int32_t unk) : unk_(unk) {
    ids_.fill(-1);
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      if (spec.types[id] != TokenType::kByte) continue;
      if (const int byte = ParseByteToken(spec.tokens[id]); byte >= 0) {
        Set(static_cast<char>(byte), static_cast<int32_t>(id));
      }
    }
  }
  // Sets the token of `byte` unless it has one.
  void Set(char byte, int32_t id) {
    int32_t& slot = ids_[static_cast<uint8_t>(byte)];
    if (slot < 0) slot = id;
  }
  // Whether every text can be encoded.
  bool complete() const {
    return unk_ >= 0 || std::all_of(ids_.begin(), ids_.end(), [](int32_t id) { return id >= 0; });
  }
  // Appends the tokens for `text`, which no token covers: its byte tokens or, if one is missing, a
  // single unknown token, if the vocabulary has one. With `after_unknown` it appends no unknown
  // token, because a run of unknown characters gets only one. Returns true if `text` is unknown.
  bool Append(std::string_view text, bool after_unknown, std::vector<int32_t>& ids) const {
    const size_t before = ids.size();
    for (const char byte : text) {
      const int32_t id = ids_[static_cast<uint8_t>(byte)];
      if (id < 0) {
        ids.resize(before);
        if (unk_ >= 0 && !after_unknown) ids.push_back(unk_);
        return true;
      }
      ids.push_back(id);
    }
    return false;
  }

 private:
  std::array<int32_t, 256> ids_;
  int32_t unk_;
};

}  // namespace tokamak
