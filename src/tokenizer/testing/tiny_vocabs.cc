#include "tokenizer/testing/tiny_vocabs.h"

#include <fmt/core.h>

#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"

namespace tokamak::testing {
namespace {

// Words are built from left to right, one merge per character: "the" needs t+h and th+e.
constexpr const char* kWords[] = {"the", " the", "then",     "cat",  " cat", "é",
                                  "  ",  "    ", "aa",       "aaaa", "\n\n", "'s",
                                  "in",  "ing",  " walking", "12",   "東",   "👍"};

int32_t Add(GgufVocab& spec, std::string text, TokenType type, float score = 0) {
  spec.tokens.push_back(std::move(text));
  spec.types.push_back(type);
  spec.scores.push_back(score);
  return static_cast<int32_t>(spec.tokens.size()) - 1;
}

void AddByteTokens(GgufVocab& spec) {
  for (int b = 0; b < 256; ++b) Add(spec, fmt::format("<0x{:02X}>", b), TokenType::kByte);
}

std::string EscapeSpaces(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == ' ' ? std::string("\u2581") : std::string(1, c);
  return out;
}

// Adds the tokens and merges that build the concatenation of `parts` from left to right.
void AddMergeChain(GgufVocab& spec, std::map<std::string, int32_t>& known,
                   const std::vector<std::string>& parts) {
  std::string left = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string joined = left + parts[i];
    if (known.emplace(joined, 0).second) {
      Add(spec, joined, TokenType::kNormal);
      spec.merges.push_back(left + " " + parts[i]);
    }
    left = joined;
  }
}

std::vector<std::string> Characters(std::string_view text) {
  std::vector<std::string> out;
  for (size_t i = 0; i < text.size(); i += Utf8Length(text[i])) {
    out.emplace_back(text.substr(i, Utf8Length(text[i])));
  }
  return out;
}

void AddSpecialTokens(GgufVocab& spec) {
  spec.special.bos = Add(spec, "<|begin|>", TokenType::kControl);
  spec.special.eos = Add(spec, "<|im_end|>", TokenType::kControl);
  Add(spec, "<tool>", TokenType::kUserDefined);
  Add(spec, "<tool><call>", TokenType::kUserDefined);
}

void AppendLittleEndian(uint32_t value, std::string& out) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// A double-array trie with two keys: "ﬁ" (EF AC 81) gives "fi", U+3000 (E3 80 80) gives " ". Nodes
// are at root ^ byte; their offsets are chosen so that none collide.
std::string TinyCharsMap() {
  std::vector<uint32_t> units(2048, 0);
  const auto set_offset = [&](uint32_t node, uint32_t offset) { units[node] |= offset << 10; };
  uint32_t next_offset = 256;
  const auto add = [&](std::string_view key, uint32_t value) {
    uint32_t base = units[0] >> 10;  // the root is node 0
    for (size_t i = 0; i < key.size(); ++i) {
      const auto byte = static_cast<uint8_t>(key[i]);
      const uint32_t node = base ^ byte;
      units[node] |= byte;
      base = node ^ next_offset;
      set_offset(node, next_offset);
      if (i + 1 == key.size()) {
        units[node] |= 1u << 8;
        units[base] = value | 1u << 31;
      }
      next_offset += 256;
    }
  };
  set_offset(0, 256);
  next_offset = 512;
  add("\xEF\xAC\x81", 0);
  add("\xE3\x80\x80", 3);
  std::string blob;
  AppendLittleEndian(static_cast<uint32_t>(units.size() * 4), blob);
  for (const uint32_t unit : units) AppendLittleEndian(unit, blob);
  blob.append("fi\0 \0", 5);
  return blob;
}

}  // namespace

GgufVocab TinyBytePairs(std::string_view pre_tokenizer) {
  GgufVocab spec;
  spec.kind = TokenizerKind::kBpe;
  spec.pre_tokenizer = pre_tokenizer;
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    Add(spec, EncodeByteAlphabet(std::string_view(&byte, 1)), TokenType::kNormal);
  }
  std::map<std::string, int32_t> known;
  for (const std::string_view word : kWords) {
    std::vector<std::string> parts;
    for (const char& c : word) parts.push_back(EncodeByteAlphabet(std::string_view(&c, 1)));
    AddMergeChain(spec, known, parts);
  }
  AddSpecialTokens(spec);
  return spec;
}

GgufVocab TinyCharacterPairs() {
  GgufVocab spec;
  spec.kind = TokenizerKind::kBpe;
  spec.pre_tokenizer = "gemma4";
  AddByteTokens(spec);
  std::map<std::string, int32_t> known;
  for (const std::string_view word : kWords) {
    const std::vector<std::string> parts = Characters(EscapeSpaces(word));
    for (const std::string& part : parts) {
      if (known.emplace(part, 0).second) Add(spec, part, TokenType::kNormal);
    }
    AddMergeChain(spec, known, parts);
  }
  AddSpecialTokens(spec);
  return spec;
}

GgufVocab TinySentencePiece() {
  GgufVocab spec;
  spec.kind = TokenizerKind::kSentencePieceBpe;
  spec.special.unk = Add(spec, "<unk>", TokenType::kUnknown);
  spec.special.bos = Add(spec, "<s>", TokenType::kControl);
  spec.special.eos = Add(spec, "</s>", TokenType::kControl);
  AddByteTokens(spec);
  std::map<std::string, int32_t> known;
  float score = 0;
  for (const std::string_view word : kWords) {
    std::string prefix;
    for (const std::string& part : Characters(EscapeSpaces(word))) {
      prefix += part;
      if (known.emplace(prefix, 0).second) Add(spec, prefix, TokenType::kNormal, score--);
      if (known.emplace(part, 0).second) Add(spec, part, TokenType::kNormal, score--);
    }
  }
  Add(spec, "<tool>", TokenType::kUserDefined);
  spec.add_bos = true;
  spec.add_space_prefix = true;
  return spec;
}

GgufVocab TinyUnigram() {
  GgufVocab spec;
  spec.kind = TokenizerKind::kUnigram;
  spec.special.pad = Add(spec, "<pad>", TokenType::kControl);
  spec.special.eos = Add(spec, "</s>", TokenType::kControl);
  spec.special.unk = Add(spec, "<unk>", TokenType::kUnknown);
  const std::pair<const char*, float> pieces[] = {
      {"\u2581", -2}, {"\u2581the", -3}, {"\u2581cat", -4}, {"t", -6}, {"h", -6},    {"e", -6},
      {"a", -6},      {"c", -6},         {"fi", -5},        {"f", -7}, {"i", -7},    {"aa", -8},
      {"ca", -9},     {"at", -7},        {"\u2581th", -7},  {"é", -8}, {"he", -7.5}, {"s", -6}};
  for (const auto& [text, score] : pieces) Add(spec, text, TokenType::kNormal, score);
  Add(spec, "<tool>", TokenType::kUserDefined);
  spec.add_eos = true;
  spec.add_space_prefix = true;
  spec.remove_extra_whitespaces = true;
  spec.precompiled_charsmap = TinyCharsMap();
  return spec;
}

GgufVocab TinyWordPiece() {
  GgufVocab spec;
  spec.kind = TokenizerKind::kWordPiece;
  spec.special.pad = Add(spec, "[PAD]", TokenType::kControl);
  spec.special.unk = Add(spec, "[UNK]", TokenType::kControl);
  spec.special.cls = spec.special.bos = Add(spec, "[CLS]", TokenType::kControl);
  spec.special.sep = Add(spec, "[SEP]", TokenType::kControl);
  for (const char* text : {"\u2581the", "\u2581cat", "\u2581c", "at", "s", "a", "e", "\u2581e",
                           "\u2581!", "\u2581東", "\u2581un", "able", "\u2581unable", "t"}) {
    Add(spec, text, TokenType::kNormal);
  }
  spec.add_bos = spec.add_eos = true;
  return spec;
}

std::vector<GgufVocab> AllTinyVocabs() {
  std::vector<GgufVocab> all;
  for (const char* name : {"smollm", "llama-bpe", "gpt-4o", "deepseek-llm", "qwen2"}) {
    all.push_back(TinyBytePairs(name));
  }
  all.push_back(TinyCharacterPairs());
  all.push_back(TinySentencePiece());
  all.push_back(TinyUnigram());
  all.push_back(TinyWordPiece());
  return all;
}

Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(GgufVocab vocab) {
  ASSIGN_OR_RETURN(VocabSpec spec, MakeGgufVocab(std::move(vocab)));
  return Tokenizer::Create(std::move(spec));
}

}  // namespace tokamak::testing
