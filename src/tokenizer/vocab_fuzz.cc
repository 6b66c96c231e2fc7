// Builds a tokenizer from any GgufVocab and uses it if it is accepted. The input is read as the
// spec's fields; strings have up to 15 bytes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/pretokenizer_table.h"
#include "tokenizer/testing/tiny_vocabs.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {
namespace {

// Takes values from the fuzzer's bytes; zeros when they run out.
class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}
  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return byte;
  }
  std::string_view Bytes(size_t size) {
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(taken.size());
    return taken;
  }
  bool empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

GgufVocab Start(uint8_t choice) {
  switch (choice % 6) {
    case 0:
      return testing::TinyBytePairs();
    case 1:
      return testing::TinyCharacterPairs();
    case 2:
      return testing::TinySentencePiece();
    case 3:
      return testing::TinyUnigram();
    case 4:
      return testing::TinyWordPiece();
    default:
      return GgufVocab();
  }
}

// Changes the spec once, as the input says.
void Change(GgufVocab& spec, Input& input, const std::vector<std::string_view>& names) {
  const auto index = [&](size_t size) { return size == 0 ? 0 : input.Byte() % size; };
  const auto text = [&] { return std::string(input.Bytes(input.Byte() % 16)); };
  const auto id = [&] { return static_cast<int32_t>(static_cast<int8_t>(input.Byte())); };
  SpecialTokenIds& s = spec.special;
  switch (input.Byte() % 12) {
    case 0:
      spec.tokens.push_back(text());
      if (!spec.types.empty()) spec.types.push_back(static_cast<TokenType>(1 + input.Byte() % 6));
      if (!spec.scores.empty()) spec.scores.push_back(static_cast<int8_t>(input.Byte()));
      return;
    case 1:
      if (!spec.tokens.empty()) spec.tokens[index(spec.tokens.size())] = text();
      return;
    case 2:
      if (!spec.types.empty()) {
        spec.types[index(spec.types.size())] = static_cast<TokenType>(1 + input.Byte() % 6);
      }
      return;
    case 3:
      spec.merges.push_back(text());
      return;
    case 4:
      spec.pre_tokenizer = names[index(names.size())];
      return;
    case 5: {
      int32_t* const roles[] = {&s.bos, &s.eos, &s.eot, &s.eom, &s.unk, &s.sep, &s.cls, &s.mask};
      *roles[index(std::size(roles))] = id();
      return;
    }
    case 6:
      spec.add_bos ^= (input.Byte() & 1) != 0;
      spec.add_eos ^= (input.Byte() & 1) != 0;
      spec.add_space_prefix ^= (input.Byte() & 1) != 0;
      spec.remove_extra_whitespaces ^= (input.Byte() & 1) != 0;
      return;
    case 7: {
      std::string& map = spec.precompiled_charsmap;
      const size_t at = input.Byte() << 8 | input.Byte();
      if (!map.empty()) map[at % map.size()] = static_cast<char>(input.Byte());
      return;
    }
    case 8:
      spec.precompiled_charsmap = text();
      return;
    case 9:
      spec.lstrip_tokens.push_back(id());
      spec.rstrip_tokens.push_back(id());
      return;
    case 10:
      if (!spec.scores.empty()) {
        spec.scores[index(spec.scores.size())] = static_cast<float>(1e38) * id();
      }
      return;
    default:
      spec.kind = static_cast<TokenizerKind>(input.Byte() % 4);
      spec.lowercase ^= true;
  }
}

void Use(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool parse : {false, true}) {
    const auto ids = tokenizer.Encode(text, {.add_special = true, .parse_special = parse});
    if (!ids.ok()) continue;
    for (const int32_t id : *ids) CHECK(id >= 0 && id < tokenizer.vocab_size());
    const std::string decoded = *tokenizer.Decode(*ids);
    CHECK(ValidUtf8Prefix(decoded) == decoded.size());
  }
}

}  // namespace
}  // namespace tokamak

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* names = new std::vector<std::string_view>(tokamak::PreTokenizerNames());
  if (size == 0 || size > 512) return 0;
  tokamak::Input input(std::string_view(reinterpret_cast<const char*>(data), size));
  tokamak::GgufVocab spec = tokamak::Start(input.Byte());
  for (int changes = input.Byte() % 32; changes > 0 && !input.empty(); --changes) {
    tokamak::Change(spec, input, *names);
  }
  const std::string_view text = input.Bytes(size);
  const auto tokenizer = tokamak::testing::MakeTokenizer(std::move(spec));
  if (tokenizer.ok()) tokamak::Use(**tokenizer, text);
  return 0;
}
