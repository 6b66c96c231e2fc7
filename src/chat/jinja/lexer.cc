#include "chat/jinja/lexer.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "chat/jinja/unicode.h"

namespace tokamak::jinja {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

// Unifies line ends and removes one at the very end.
std::string NormalizeLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool IsDigitByte(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> Run() {
    while (status_.ok() && at_ < source_.size()) Root();
    if (!status_.ok()) return status_;
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void Fail(std::string_view message) {
    if (status_.ok()) status_ = InvalidArgument("line {}: {}", line_, message);
  }
  void Add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, line_, std::move(text)});
  }
  std::string_view Rest() const { return source_.substr(at_); }
  // Counts lines, and notes whether the text ended one, for the whitespace rules of tags.
  void Skip(size_t bytes) {
    if (bytes == 0) return;
    const std::string_view skipped = source_.substr(at_, bytes);
    line_ += static_cast<int32_t>(std::count(skipped.begin(), skipped.end(), '\n'));
    line_starts_ = skipped.ends_with('\n');
    at_ += skipped.size();
  }
  void SkipSpaces() { Skip(Rest().size() - StripLeft(Rest()).size()); }

  // Reads text up to the next tag, and the tag.
  void Root() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == kNowhere || tag + 1 >= source_.size()) {
        AddText(Rest());
        Skip(Rest().size());
        return;
      }
      const char kind = source_[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    AddText(Stripped(source_.substr(at_, tag - at_), has_sign ? sign : '\0', kind == '{'));
    Skip(tag - at_);
    const size_t opening = has_sign ? 3 : 2;
    if (kind == '#') return Comment(opening);
    if (kind == '%' && IsWord(opening, "raw")) return Raw();
    Skip(opening);
    Add(kind == '{' ? Token::Kind::kOutputBegin : Token::Kind::kBlockBegin, "");
    Inside(kind == '{');
  }

  void AddText(std::string_view text) {
    if (!text.empty()) Add(Token::Kind::kText, std::string(text));
  }

  // Returns what a tag's whitespace rules leave of the text before it.
  std::string_view Stripped(std::string_view text, char sign, bool output) const {
    if (sign == '-') return StripRight(text);
    if (sign == '+' || output) return text;
    const size_t line = text.rfind('\n') + 1;  // 0 if there is no line end
    if (line == 0 && !line_starts_) return text;
    const bool blank = StripLeft(text.substr(line)).empty();
    return blank ? text.substr(0, line) : text;
  }

  // Whether the tag here contains only `word`. Sets word_end_ to the end of its content.
  bool IsWord(size_t opening, std::string_view word) {
    std::string_view rest = StripLeft(Rest().substr(std::min(opening, Rest().size())));
    if (!rest.starts_with(word)) return false;
    rest = StripLeft(rest.substr(word.size()));
    if (!rest.starts_with("%}") && !rest.starts_with("-%}") && !rest.starts_with("+%}")) {
      return false;
    }
    word_end_ = Rest().size() - rest.size();
    return true;
  }

  // Skips a tag's end and the whitespace that it removes. `close` is the end without its sign.
  void Close(std::string_view close, bool trim_line) {
    const bool minus = Rest().starts_with('-');
    const bool plus = Rest().starts_with('+');
    Skip(close.size() + (minus || plus ? 1 : 0));
    if (minus) {
      SkipSpaces();
    } else if (!plus && trim_line && Rest().starts_with('\n')) {
      Skip(1);
    }
  }

  void Comment(size_t opening) {
    const size_t end = source_.find("#}", at_ + opening);
    if (end == kNowhere) return Fail("a comment does not end");
    const char sign = end > at_ + opening ? source_[end - 1] : '\0';
    Skip(end - at_ - (sign == '-' || sign == '+' ? 1 : 0));
    Close("#}", /*trim_line=*/true);
  }

  void Raw() {
    Skip(word_end_);
    Close("%}", /*trim_line=*/false);
    for (size_t tag = at_;; tag += 2) {
      tag = source_.find("{%", tag);
      if (tag == kNowhere) return Fail("a raw block does not end");
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const bool has_sign = sign == '-' || sign == '+';
      const size_t start = at_;
      at_ = tag;
      const bool ends = IsWord(has_sign ? 3 : 2, "endraw");
      at_ = start;
      if (!ends) continue;
      AddText(Stripped(source_.substr(at_, tag - at_), has_sign ? sign : '\0', false));
      Skip(tag - at_ + word_end_);
      return Close("%}", /*trim_line=*/true);
    }
  }

  // Reads the tokens of a tag, including its end.
  void Inside(bool output) {
    std::string open;  // open brackets
    const std::string_view close = output ? "}}" : "%}";
    while (status_.ok()) {
      SkipSpaces();
      if (at_ >= source_.size()) return Fail("a tag does not end");
      const char c = source_[at_];
      const bool sign = c == '-' || (c == '+' && !output);
      if (open.empty() && Rest().substr(sign ? 1 : 0).starts_with(close)) {
        Add(output ? Token::Kind::kOutputEnd : Token::Kind::kBlockEnd, "");
        return Close(close, /*trim_line=*/!output);
      }
      size_t next = at_;
      if (c == '\'' || c == '"') {
        String(c);
      } else if (IsDigitByte(c)) {
        Number();
      } else if (IsNameStart(NextCodePoint(source_, next))) {
        Name();
      } else {
        OperatorToken(open);
      }
    }
  }

  void Name() {
    size_t end = at_;
    while (end < source_.size()) {
      size_t next = end;
      if (!IsNamePart(NextCodePoint(source_, next))) break;
      end = next;
    }
    Add(Token::Kind::kName, std::string(source_.substr(at_, end - at_)));
    Skip(end - at_);
  }

  size_t Digits(size_t at, bool (*digit)(char)) const {
    while (at < source_.size()) {
      if (digit(source_[at])) {
        ++at;
      } else if (source_[at] == '_' && at + 1 < source_.size() && digit(source_[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  void Number() {
    const auto is_hex = [](char c) {
      return IsDigitByte(c) || ((c | 32) >= 'a' && (c | 32) <= 'f');
    };
    const char second = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 32) : '\0';
    size_t end = at_;
    Token::Kind kind = Token::Kind::kInteger;
    if (source_[at_] == '0' && (second == 'x' || second == 'o' || second == 'b')) {
      end = Digits(at_ + 2, is_hex);
    } else {
      end = Digits(at_, IsDigitByte);
      const auto at = [this](size_t i) { return i < source_.size() ? source_[i] : '\0'; };
      // "x.0.1" is two items, not an item and a float.
      const bool behind_dot = at_ > 0 && source_[at_ - 1] == '.';
      if (!behind_dot && at(end) == '.' && IsDigitByte(at(end + 1))) {
        end = Digits(end + 1, IsDigitByte);
        kind = Token::Kind::kFloat;
      }
      const size_t sign = at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0;
      if (!behind_dot && (at(end) | 32) == 'e' && IsDigitByte(at(end + 1 + sign))) {
        end = Digits(end + 1 + sign, IsDigitByte);
        kind = Token::Kind::kFloat;
      }
    }
    std::string digits;
    for (const char c : source_.substr(at_, end - at_)) {
      if (c != '_') digits += c;
    }
    Add(kind, std::move(digits));
    Skip(end - at_);
  }

  void OperatorToken(std::string& open) {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!Rest().starts_with(op)) continue;
      const char c = op[0];
      if (c == '(' || c == '[' || c == '{') {
        open += c;
        if (open.size() > 1000) return Fail("brackets nest too deeply");
      } else if (c == ')' || c == ']' || c == '}') {
        const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
        if (open.empty() || open.back() != wanted) return Fail(fmt::format("unexpected '{}'", c));
        open.pop_back();
      }
      Add(Token::Kind::kOperator, std::string(op));
      return Skip(op.size());
    }
    size_t next = at_;
    NextCodePoint(source_, next);
    Fail(fmt::format("unexpected char '{}'", source_.substr(at_, next - at_)));
  }

  void String(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Fail("a string does not end");
    const int32_t line = line_;
    std::string value = Unescape(source_.substr(at_ + 1, end - at_ - 1));
    tokens_.push_back({Token::Kind::kString, line, std::move(value)});
    Skip(end + 1 - at_);
  }

  // Resolves Python's escapes.
  std::string Unescape(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view kNames = "abfnrtv\\'\"\n";
      static constexpr std::string_view kValues("\a\b\f\n\r\t\v\\'\"", 10);
      const size_t named = kNames.find(c);
      if (named < kValues.size()) {
        out += kValues[named];
      } else if (c == '\n') {
        continue;  // the line continues
      } else if (c >= '0' && c <= '7') {
        size_t digits = 1;
        while (digits < 3 && i + digits < text.size() && text[i + digits] >= '0' &&
               text[i + digits] <= '7') {
          ++digits;
        }
        AppendCodePoint(Code(text.substr(i, digits), 8), out);
        i += digits - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const char32_t code = Code(text.substr(i + 1, digits), 16);
        if (i + digits >= text.size() || code >= 0x110000 || (code >= 0xD800 && code < 0xE000)) {
          Fail(fmt::format("\\{} in a string does not name a character", c));
          return "";
        }
        AppendCodePoint(code, out);
        i += digits;
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  // Parses a few digits; 0x110000 if they are not a number.
  static char32_t Code(std::string_view digits, int base) {
    return std::min(ParseNumber<uint32_t>(digits, base).value_or(0x110000), 0x110000u);
  }

  const std::string_view source_;
  size_t at_ = 0;
  int32_t line_ = 1;
  bool line_starts_ = true;  // the last skipped text ended a line
  size_t word_end_ = 0;
  Status status_;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  if (!IsValidUtf8(source)) return InvalidArgument("the template is not valid UTF-8");
  const std::string normalized = NormalizeLines(source);
  return Lexer(normalized).Run();
}

}  // namespace tokamak::jinja
