#include "tokenizer/testing/test_strings.h"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string_view>
#include <unordered_map>

#include "base/check.h"
#include "base/utf8.h"

namespace tokamak::testing {
namespace {

// tests/golden/tokenizer_strings.py repeats each table, and the order of draws below.
constexpr std::string_view kWords[] = {
    "the",      "of",      "and",     "tokenizer", "Hello",    "WORLD", "naïve",  "I",
    "don",      "running", "a",       "Привет",    "мир",      "東京",  "한국어", "العربية",
    "ελληνικά", "हिन्दी",   "ภาษาไทย", "straße",    "İstanbul", "ﬁne",   "Ǆ",      "ﷺ"};
constexpr std::string_view kContractions[] = {"'s",  "'t",  "'re", "'ve", "'m",  "'ll", "'d", "'S",
                                              "'RE", "'Ll", "’s",  "'",   "''s", "'ſ",  "'x"};
constexpr std::string_view kSpaces[] = {" ",      " ",      " ",      "  ",     "    ",   "\t",
                                        "\n",     "\r\n",   "\n\n",   "\r",     "\v",     "\f",
                                        "\u00A0", "\u3000", "\u2003", "\u0085", "\u2028", "\u200B",
                                        "\u180E", "\u202F", "\uFEFF"};
constexpr std::string_view kEmoji[] = {"👍",
                                       "👍🏽",
                                       "👩‍👩‍👧‍👦",
                                       "🏳️‍🌈",
                                       "🇩🇪",
                                       "❤️",
                                       "1️⃣",
                                       "👨🏿‍🚀",
                                       "😶‍🌫️",
                                       "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
                                       "🚀🚀🚀"};
constexpr std::string_view kSpecial[] = {
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<|im_start|",    "<|im_end|>\n",
    "<s>",          "</s>",       "[CLS]",         "<file_sep>",  "<|im_<|im_end|>"};
// Put before a character of Unicode.
constexpr std::string_view kBefore[] = {"", "", "", " ", "ab", "7", "\n", "'", "\u0301", "東"};
constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
// Blocks whose characters have the same properties in all Unicode versions in use.
constexpr uint32_t kBlocks[][2] = {
    {0x20, 0x7E},       {0xA1, 0x24F},       {0x370, 0x3FF},     {0x400, 0x481},
    {0x531, 0x556},     {0x5D0, 0x5EA},      {0x620, 0x669},     {0x904, 0x939},
    {0x93E, 0x94D},     {0x985, 0x9B9},      {0xB85, 0xBB9},     {0xE01, 0xE3A},
    {0xE40, 0xE5B},     {0x10D0, 0x10FA},    {0x1100, 0x11FF},   {0x1780, 0x17D3},
    {0x1E00, 0x1EFF},   {0x2010, 0x205E},    {0x2070, 0x209C},   {0x2100, 0x218B},
    {0x2190, 0x22FF},   {0x2460, 0x24FF},    {0x2700, 0x27BF},   {0x3041, 0x3096},
    {0x30A1, 0x30FA},   {0x4E00, 0x9FEF},    {0xAC00, 0xD7A3},   {0xE000, 0xF8FF},
    {0xFF01, 0xFF5E},   {0x1D400, 0x1D7CB},  {0x1F300, 0x1F64F}, {0x20000, 0x2A6D6},
    {0xE0020, 0xE007E}, {0x10FFF0, 0x10FFFF}};

// splitmix64 (Steele, Lea and Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Below(uint64_t n) {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % n;
  }
  template <typename Table>
  const auto& Pick(const Table& table) {
    return table[Below(std::size(table))];
  }

 private:
  uint64_t state_;
};

void AppendWord(Random& random, std::string& out) {
  if (random.Below(2) == 1) out += ' ';
  const std::string_view word = random.Pick(kWords);
  const bool shout = random.Below(8) == 0;
  for (const char c : word) {
    out += shout && c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  }
}

void AppendScript(Random& random, std::string& out) {
  const auto& block = random.Pick(kBlocks);
  const uint64_t count = 1 + random.Below(8);
  for (uint64_t i = 0; i < count; ++i) {
    AppendCodePoint(static_cast<uint32_t>(block[0] + random.Below(block[1] - block[0] + 1)), out);
  }
}

void AppendRepeated(Random& random, std::string& out) {
  const std::string_view unit = random.Below(2) == 0 ? random.Pick(kSpaces) : random.Pick(kWords);
  const uint64_t count = 2 + random.Below(40);
  for (uint64_t i = 0; i < count; ++i) out += unit;
}

void AppendPart(Random& random, std::string& out) {
  switch (random.Below(12)) {
    case 0:
    case 1:
      return AppendWord(random, out);
    case 2:
      for (uint64_t n = 1 + random.Below(9); n > 0; --n) {
        out += static_cast<char>('0' + random.Below(10));
      }
      return;
    case 3:
    case 4:
      out += random.Pick(kSpaces);
      return;
    case 5:
      for (uint64_t n = 1 + random.Below(4); n > 0; --n) out += random.Pick(kPunctuation);
      return;
    case 6:
      out += random.Pick(kContractions);
      return;
    case 7:
      return AppendScript(random, out);
    case 8:
      out += random.Pick(kEmoji);
      return;
    case 9:
      for (uint64_t n = 1 + random.Below(4); n > 0; --n) {
        AppendCodePoint(static_cast<uint32_t>(0x300 + random.Below(0x70)), out);
      }
      return;
    case 10:
      if (random.Below(4) == 0) {
        for (uint64_t n = 1 + random.Below(8); n > 0; --n) {
          out += static_cast<char>(random.Below(256));
        }
      } else {
        out += random.Pick(kSpecial);
      }
      return;
    default:
      if (random.Below(8) == 0) AppendRepeated(random, out);
  }
}

std::ifstream Open(const std::string& path) {
  std::ifstream file(path);
  CHECK(file.good());
  return file;
}

class Varied {
 public:
  explicit Varied(const std::string& folder) {
    std::ifstream corpus = Open(folder + "/corpus.txt");
    corpus_.assign(std::istreambuf_iterator<char>(corpus), {});
    const std::string circle = corpus_ + corpus_.substr(0, kContext);
    for (size_t i = 0; i < corpus_.size(); ++i) {
      followers_[circle.substr(i, kContext)] += circle[i + kContext];
    }
    std::ifstream special = Open(folder + "/special_tokens.txt");
    for (std::string line; std::getline(special, line);) special_tokens_.push_back(line);
    std::ifstream ranges = Open(folder + "/characters.txt");
    for (uint32_t low = 0, high = 0; ranges >> std::hex >> low >> high;) {
      for (uint32_t c = low; c <= high; ++c) characters_.push_back(c);
    }
  }

  std::string Make(uint64_t index) const {
    Random random(index);
    switch (index % 4) {
      case 0:
        return TestString(index);
      case 1:
        return Pieces(random);
      case 2:
        return Babble(random);
      default:
        return Characters(random, index / 4);
    }
  }

 private:
  static constexpr size_t kContext = 3;  // bytes

  std::string Piece(Random& random) const {
    size_t begin = random.Below(corpus_.size());
    size_t end = begin + 1 + random.Below(random.Below(8) == 0 ? 600 : 120);
    end = std::min(end, corpus_.size());
    const auto inside = [&](size_t i) {  // inside a character
      return i < corpus_.size() && (static_cast<uint8_t>(corpus_[i]) & 0xC0) == 0x80;
    };
    while (inside(begin)) ++begin;
    while (inside(end)) ++end;
    return corpus_.substr(begin, end - begin);
  }

  std::string Pieces(Random& random) const {
    std::string out = Piece(random);
    while (random.Below(3) == 0) {
      if (random.Below(2) == 0) {
        out += random.Pick(special_tokens_);
      } else {
        out += random.Pick(kSpaces);
      }
      out += Piece(random);
    }
    return out;
  }

  // Each byte follows the previous three somewhere in the corpus (Shannon 1948).
  std::string Babble(Random& random) const {
    const size_t begin = random.Below(corpus_.size() - kContext);
    std::string out = corpus_.substr(begin, kContext);
    for (uint64_t n = 1 + random.Below(200); n > 0; --n) {
      out += random.Pick(followers_.at(out.substr(out.size() - kContext)));
    }
    return out;
  }

  // Six consecutive characters, and as many from anywhere.
  std::string Characters(Random& random, uint64_t number) const {
    std::string out;
    for (uint64_t i = 6 * number; i < 6 * number + 6; ++i) {
      out += random.Pick(kBefore);
      AppendCodePoint(characters_[i % characters_.size()], out);
      if (random.Below(2) == 0) AppendCodePoint(random.Pick(characters_), out);
    }
    return out;
  }

  std::string corpus_;
  std::unordered_map<std::string, std::string> followers_;
  std::vector<std::string> special_tokens_;
  std::vector<uint32_t> characters_;
};

}  // namespace

std::string TestString(uint64_t index) {
  Random random(index);
  std::string out;
  for (uint64_t parts = 1 + random.Below(16); parts > 0; --parts) AppendPart(random, out);
  return out;
}

std::vector<std::string> VariedStrings(const std::string& folder, uint64_t count) {
  const Varied varied(folder);
  std::vector<std::string> strings;
  for (uint64_t i = 0; i < count; ++i) strings.push_back(varied.Make(i));
  return strings;
}

uint32_t Fnv32(std::string_view bytes) {
  uint32_t hash = 0x811C9DC5;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x01000193;
  return hash;
}

}  // namespace tokamak::testing
