// Translates Oniguruma's (Ruby's) syntax to PCRE2's.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/regex.h"

namespace tokamak {
namespace {

// Members of a class. PCRE2's \s includes U+180E, which the property White_Space does not.
constexpr std::string_view kSpace =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr std::string_view kNotSpace =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}";
// Letters, marks, decimal digits, connectors, and other alphabetic characters.
constexpr std::string_view kWord =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}";

constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
    {"Letter", "L"},         {"Mark", "M"},   {"Number", "N"},
    {"Punctuation", "P"},    {"Punct", "P"},  {"Symbol", "S"},
    {"Separator", "Z"},      {"Other", "C"},  {"Digit", "Nd"},
    {"Upper", "Lu"},         {"Lower", "Ll"}, {"Uppercase_Letter", "Lu"},
    {"Alpha", "L"},          {"Cntrl", "Cc"}, {"Lowercase_Letter", "Ll"},
    {"Decimal_Number", "Nd"}};

// Characters of Unicode 16 that are missing from PCRE2's tables (Unicode 14 in PCRE2 10.42).
constexpr struct {
  uint32_t first, last;
  char category[3];
} kLater[] = {{0x897, 0x897, "Mn"},     {0xCF3, 0xCF3, "Mc"},     {0xECE, 0xECE, "Mn"},
              {0x1B4E, 0x1B4F, "Po"},   {0x1B7F, 0x1B7F, "Po"},   {0x1C89, 0x1C89, "Lu"},
              {0x1C8A, 0x1C8A, "Ll"},   {0x2427, 0x2429, "So"},   {0x2FFC, 0x2FFF, "So"},
              {0x31E4, 0x31E5, "So"},   {0x31EF, 0x31EF, "So"},   {0xA7CB, 0xA7CC, "Lu"},
              {0xA7CD, 0xA7CD, "Ll"},   {0xA7DA, 0xA7DA, "Lu"},   {0xA7DB, 0xA7DB, "Ll"},
              {0xA7DC, 0xA7DC, "Lu"},   {0x105C0, 0x105F3, "Lo"}, {0x10D40, 0x10D49, "Nd"},
              {0x10D4A, 0x10D4D, "Lo"}, {0x10D4E, 0x10D4E, "Lm"}, {0x10D4F, 0x10D4F, "Lo"},
              {0x10D50, 0x10D65, "Lu"}, {0x10D69, 0x10D6D, "Mn"}, {0x10D6E, 0x10D6E, "Pd"},
              {0x10D6F, 0x10D6F, "Lm"}, {0x10D70, 0x10D85, "Ll"}, {0x10D8E, 0x10D8F, "Sm"},
              {0x10EC2, 0x10EC4, "Lo"}, {0x10EFC, 0x10EFF, "Mn"}, {0x1123F, 0x11240, "Lo"},
              {0x11241, 0x11241, "Mn"}, {0x11380, 0x11389, "Lo"}, {0x1138B, 0x1138B, "Lo"},
              {0x1138E, 0x1138E, "Lo"}, {0x11390, 0x113B5, "Lo"}, {0x113B7, 0x113B7, "Lo"},
              {0x113B8, 0x113BA, "Mc"}, {0x113BB, 0x113C0, "Mn"}, {0x113C2, 0x113C2, "Mc"},
              {0x113C5, 0x113C5, "Mc"}, {0x113C7, 0x113CA, "Mc"}, {0x113CC, 0x113CD, "Mc"},
              {0x113CE, 0x113CE, "Mn"}, {0x113CF, 0x113CF, "Mc"}, {0x113D0, 0x113D0, "Mn"},
              {0x113D1, 0x113D1, "Lo"}, {0x113D2, 0x113D2, "Mn"}, {0x113D3, 0x113D3, "Lo"},
              {0x113D4, 0x113D5, "Po"}, {0x113D7, 0x113D8, "Po"}, {0x113E1, 0x113E2, "Mn"},
              {0x116D0, 0x116E3, "Nd"}, {0x11B00, 0x11B09, "Po"}, {0x11BC0, 0x11BE0, "Lo"},
              {0x11BE1, 0x11BE1, "Po"}, {0x11BF0, 0x11BF9, "Nd"}, {0x11F00, 0x11F01, "Mn"},
              {0x11F02, 0x11F02, "Lo"}, {0x11F03, 0x11F03, "Mc"}, {0x11F04, 0x11F10, "Lo"},
              {0x11F12, 0x11F33, "Lo"}, {0x11F34, 0x11F35, "Mc"}, {0x11F36, 0x11F3A, "Mn"},
              {0x11F3E, 0x11F3F, "Mc"}, {0x11F40, 0x11F40, "Mn"}, {0x11F41, 0x11F41, "Mc"},
              {0x11F42, 0x11F42, "Mn"}, {0x11F43, 0x11F4F, "Po"}, {0x11F50, 0x11F59, "Nd"},
              {0x11F5A, 0x11F5A, "Mn"}, {0x1342F, 0x1342F, "Lo"}, {0x13439, 0x1343F, "Cf"},
              {0x13440, 0x13440, "Mn"}, {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"},
              {0x13460, 0x143FA, "Lo"}, {0x16100, 0x1611D, "Lo"}, {0x1611E, 0x16129, "Mn"},
              {0x1612A, 0x1612C, "Mc"}, {0x1612D, 0x1612F, "Mn"}, {0x16130, 0x16139, "Nd"},
              {0x16D40, 0x16D42, "Lm"}, {0x16D43, 0x16D6A, "Lo"}, {0x16D6B, 0x16D6C, "Lm"},
              {0x16D6D, 0x16D6F, "Po"}, {0x16D70, 0x16D79, "Nd"}, {0x18CFF, 0x18CFF, "Lo"},
              {0x1B132, 0x1B132, "Lo"}, {0x1B155, 0x1B155, "Lo"}, {0x1CC00, 0x1CCEF, "So"},
              {0x1CCF0, 0x1CCF9, "Nd"}, {0x1CD00, 0x1CEB3, "So"}, {0x1D2C0, 0x1D2D3, "No"},
              {0x1DF25, 0x1DF2A, "Ll"}, {0x1E030, 0x1E06D, "Lm"}, {0x1E08F, 0x1E08F, "Mn"},
              {0x1E4D0, 0x1E4EA, "Lo"}, {0x1E4EB, 0x1E4EB, "Lm"}, {0x1E4EC, 0x1E4EF, "Mn"},
              {0x1E4F0, 0x1E4F9, "Nd"}, {0x1E5D0, 0x1E5ED, "Lo"}, {0x1E5EE, 0x1E5EF, "Mn"},
              {0x1E5F0, 0x1E5F0, "Lo"}, {0x1E5F1, 0x1E5FA, "Nd"}, {0x1E5FF, 0x1E5FF, "Po"},
              {0x1F6DC, 0x1F6DC, "So"}, {0x1F774, 0x1F776, "So"}, {0x1F77B, 0x1F77F, "So"},
              {0x1F7D9, 0x1F7D9, "So"}, {0x1F8B2, 0x1F8BB, "So"}, {0x1F8C0, 0x1F8C1, "So"},
              {0x1FA75, 0x1FA77, "So"}, {0x1FA87, 0x1FA89, "So"}, {0x1FA8F, 0x1FA8F, "So"},
              {0x1FAAD, 0x1FAAF, "So"}, {0x1FABB, 0x1FABF, "So"}, {0x1FAC6, 0x1FAC6, "So"},
              {0x1FACE, 0x1FACF, "So"}, {0x1FADA, 0x1FADC, "So"}, {0x1FADF, 0x1FADF, "So"},
              {0x1FAE8, 0x1FAE9, "So"}, {0x1FAF7, 0x1FAF8, "So"}, {0x1FBCB, 0x1FBEF, "So"},
              {0x2B739, 0x2B739, "Lo"}, {0x2EBF0, 0x2EE5D, "Lo"}, {0x31350, 0x323AF, "Lo"}};

// Returns these characters of a general category ("L", "Nd") as members of a PCRE2 class:
// "\\x{1E5F1}-\\x{1E5FA}...".
std::string LaterCharacters(std::string_view category) {
  std::string members;
  for (const auto& range : kLater) {
    const std::string_view name = range.category;
    const bool cased = category == "L&" && (name == "Lu" || name == "Ll" || name == "Lt");
    if (!name.starts_with(category) && !cased) continue;
    members += range.first == range.last
                   ? fmt::format("\\x{{{:X}}}", range.first)
                   : fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", range.first, range.last);
  }
  return members;
}

bool IsCategory(std::string_view name) {
  constexpr std::string_view kMajor = "LMNPSZC";
  return !name.empty() && name.size() <= 2 && kMajor.find(name[0]) != std::string_view::npos &&
         (name.size() == 1 || name[1] == '&' || (name[1] >= 'a' && name[1] <= 'z'));
}

class Translator {
 public:
  explicit Translator(std::string_view text) : text_(text) {}

  Result<std::string> Run() {
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\') {
        RETURN_IF_ERROR(Escape(/*in_class=*/false, out));
      } else if (c == '[') {
        RETURN_IF_ERROR(Class(0, out));
      } else {
        out += c;
        ++at_;
      }
    }
    return out;
  }

 private:
  Status Bad(std::string_view what) const {
    return Unimplemented("the pattern \"{}\": {} at byte {} is not supported", ToValidUtf8(text_),
                         what, at_);
  }

  void Members(std::string_view members, bool in_class, bool negated, std::string& out) {
    at_ += 2;
    if (in_class) {
      out += members;
    } else {
      out += negated ? "[^" : "[";
      out += members;
      out += ']';
    }
  }

  Status Escape(bool in_class, std::string& out) {
    if (at_ + 1 >= text_.size()) return Bad("a single backslash");
    const char c = text_[at_ + 1];
    switch (c) {
      case 's':
        Members(kSpace, in_class, false, out);
        return Status();
      case 'S':
        Members(in_class ? kNotSpace : kSpace, in_class, true, out);
        return Status();
      case 'd':
      case 'D':
        at_ += 2;
        Category("Nd", in_class, c == 'D', out);
        return Status();
      case 'w':
        Members(kWord, in_class, false, out);
        return Status();
      case 'W':
        if (in_class) return Bad("\\W in a class");
        Members(kWord, in_class, true, out);
        return Status();
      case 'h':
        Members("0-9a-fA-F", in_class, false, out);
        return Status();
      case 'p':
      case 'P':
        return Property(in_class, out);
      case 'b':
        if (in_class) break;
        [[fallthrough]];
      case 'B':
      case 'X':
      case 'R':
      case 'K':
      case 'G':
      case 'g':
      case 'k':
      case 'H':
      case 'C':
      case 'N':
      case 'O':
      case 'E':
      case 'Q':
        return Bad(text_.substr(at_, 2));
      case 'u':  // \uHHHH
        if (at_ + 6 > text_.size()) return Bad("\\u");
        out += "\\x{" + std::string(text_.substr(at_ + 2, 4)) + "}";
        at_ += 6;
        return Status();
      default:
        break;
    }
    const size_t size = 1 + Utf8Length(c);
    out += text_.substr(at_, size);
    at_ += size;
    return Status();
  }

  // Appends a class, or members inside one. A negated category inside a class follows PCRE2's
  // tables.
  static void Category(std::string_view name, bool in_class, bool negated, std::string& out) {
    const std::string later = in_class && negated ? "" : LaterCharacters(name);
    if (in_class || later.empty()) {
      out += fmt::format("\\{}{{{}}}{}", negated ? 'P' : 'p', name, later);
    } else {
      out += fmt::format("[{}\\p{{{}}}{}]", negated ? "^" : "", name, later);
    }
  }

  // \p{L}, \p{Han}, \p{^L}
  Status Property(bool in_class, std::string& out) {
    bool negated = text_[at_ + 1] == 'P';
    const size_t open = at_ + 2;
    if (open >= text_.size()) return Bad("an unfinished \\p");
    std::string_view name;
    size_t end;
    if (text_[open] == '{') {
      const size_t close = text_.find('}', open);
      if (close == std::string_view::npos) return Bad("an unfinished \\p");
      name = text_.substr(open + 1, close - open - 1);
      end = close + 1;
    } else {
      name = text_.substr(open, 1);
      end = open + 1;
    }
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    for (const auto& [known, category] : kLongNames) {
      if (name == known) name = category;
    }
    at_ = end;
    if (IsCategory(name)) {
      Category(name, in_class, negated, out);
      return Status();
    }
    out += negated ? "\\P{" : "\\p{";
    // Without "sc:", PCRE2 would also match characters that a script shares with others.
    if (name != "Any" && name.find('=') == std::string_view::npos) out += "sc:";
    out += name;
    out += '}';
    return Status();
  }

  // A class from its opening to its closing bracket. Intersections become lookaheads.
  Status Class(int depth, std::string& out) {
    if (depth > 8) return Bad("a class nested this deep");
    ++at_;
    bool negated = false;
    if (at_ < text_.size() && text_[at_] == '^') {
      negated = true;
      ++at_;
    }
    std::vector<std::string> parts(1);  // the members of each part of the intersection
    std::vector<bool> part_negated(1, false);
    bool first = true;
    while (true) {
      if (at_ >= text_.size()) return Bad("a class without an end");
      const char c = text_[at_];
      if (c == ']' && !first) break;
      if (text_.substr(at_, 2) == "&&") {
        parts.emplace_back();
        part_negated.push_back(false);
        at_ += 2;
      } else if (c == '[') {
        RETURN_IF_ERROR(Nested(depth, parts.back(), part_negated));
      } else if (c == '\\') {
        RETURN_IF_ERROR(Escape(/*in_class=*/true, parts.back()));
      } else {
        if (c == ']') parts.back() += '\\';  // as the first member
        parts.back() += c;
        ++at_;
      }
      first = false;
    }
    ++at_;
    return Emit(negated, parts, part_negated, out);
  }

  Status Nested(int depth, std::string& members, std::vector<bool>& part_negated) {
    if (text_.substr(at_, 2) == "[:") {
      const size_t close = text_.find(":]", at_);
      if (close == std::string_view::npos) return Bad("an unfinished [:");
      const std::string_view name = text_.substr(at_ + 2, close - at_ - 2);
      const std::pair<std::string_view, std::string_view> known[] = {
          {"space", kSpace},    {"word", kWord},
          {"digit", "\\p{Nd}"}, {"punct", "\\p{P}$+<=>^`|~"},
          {"alpha", "\\p{L}"},  {"alnum", "\\p{L}\\p{Nd}"},
          {"upper", "\\p{Lu}"}, {"lower", "\\p{Ll}"}};
      for (const auto& [posix, replacement] : known) {
        if (name != posix) continue;
        members += replacement;
        at_ = close + 2;
        return Status();
      }
      return Bad("this POSIX class");
    }
    std::string inner;
    RETURN_IF_ERROR(Class(depth + 1, inner));
    if (inner.front() != '[') return Bad("an intersection in a class in a class");
    const bool negated = inner.starts_with("[^");
    const std::string_view content =
        std::string_view(inner).substr(negated ? 2 : 1, inner.size() - (negated ? 3 : 2));
    if (negated) {
      if (!members.empty()) return Bad("a union with a negated class");
      part_negated.back() = true;
    } else if (part_negated.back()) {
      return Bad("a union with a negated class");
    }
    members += content;
    return Status();
  }

  Status Emit(bool negated, const std::vector<std::string>& parts,
              const std::vector<bool>& part_negated, std::string& out) const {
    for (const std::string& part : parts) {
      if (part.empty()) return Bad("an empty class");
    }
    if (parts.size() == 1) {
      out += (negated != part_negated[0] ? "[^" : "[") + parts[0] + "]";
      return Status();
    }
    if (negated) return Bad("a negated intersection");
    out += "(?:";
    for (size_t i = 1; i < parts.size(); ++i) {
      out += (part_negated[i] ? "(?![" : "(?=[") + parts[i] + "])";
    }
    out += (part_negated[0] ? "[^" : "[") + parts[0] + "])";
    return Status();
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<std::string> TranslateOniguruma(std::string_view pattern) {
  if (ValidUtf8Prefix(pattern) != pattern.size()) {
    return InvalidArgument("a pattern is not valid UTF-8");
  }
  return Translator(pattern).Run();
}

}  // namespace tokamak
