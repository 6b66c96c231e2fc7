#include "tokenizer/byte_tokens.h"

#include <algorithm>

#include "tokenizer/pipeline_spec.h"

namespace tokamak {

int ParseByteToken(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = digit(text[3]), low = digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

ByteTokens::ByteTokens(const VocabSpec& spec) {
  ids_.fill(-1);
  if (!spec.pipeline.byte_fallback) return;
  const bool typed =
      std::find(spec.types.begin(), spec.types.end(), TokenType::kByte) != spec.types.end();
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (typed ? spec.types[id] != TokenType::kByte : !spec.pipeline.in_model[id]) continue;
    const int byte = ParseByteToken(spec.tokens[id]);
    if (byte < 0 || ids_[static_cast<size_t>(byte)] >= 0) continue;
    ids_[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
  }
}

bool ByteTokens::Cover(std::string_view text) const {
  return std::all_of(text.begin(), text.end(), [this](char byte) { return (*this)[byte] >= 0; });
}

bool ByteTokens::complete() const {
  return std::all_of(ids_.begin(), ids_.end(), [](int32_t id) { return id >= 0; });
}

}  // namespace tokamak
