// Translates Oniguruma's (Ruby's) syntax to PCRE2's.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode_later.h"
#include "tokenizer/utf8.h"

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
