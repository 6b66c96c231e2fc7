#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace tokamak {
namespace {

// Bounds the time to O(text × kMaxTokenBytes).
constexpr size_t kMaxTokenBytes = 1024;

bool EndsWithWord(std::string_view text) {
  if (text.empty()) return false;
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return IsWordCharacter(NextCodePoint(text, begin));
}

bool StartsWithWord(std::string_view text) {
  size_t offset = 0;
  return !text.empty() && IsWordCharacter(NextCodePoint(text, offset));
}

}  // namespace

Result<AddedTokenMatcher> AddedTokenMatcher::Create(const std::vector<Entry>& entries) {
  AddedTokenMatcher matcher;
  std::vector<std::pair<std::string_view, int32_t>> plain, all;
  for (const Entry& entry : entries) {
    if (entry.text.empty()) continue;
    if (entry.text.size() > kMaxTokenBytes) {
      return InvalidArgument("the added or special token {} has {} bytes; at most {} are supported",
                             entry.token.id, entry.text.size(), kMaxTokenBytes);
    }
    all.emplace_back(entry.text, entry.token.id);
    if (!entry.token.special) plain.emplace_back(entry.text, entry.token.id);
    matcher.tokens_.push_back(entry.token);
  }
  std::sort(matcher.tokens_.begin(), matcher.tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  matcher.plain_ = ByteTrie(std::move(plain));
  matcher.all_ = ByteTrie(std::move(all));
  return matcher;
}

const AddedToken& AddedTokenMatcher::Find(int32_t id) const {
  return *std::lower_bound(
      tokens_.begin(), tokens_.end(), id,
      [](const AddedToken& token, int32_t wanted) { return token.id < wanted; });
}

Status AddedTokenMatcher::Partition(std::string_view text, bool parse_special,
                                    FunctionRef<Status(std::string_view, bool)> on_text,
                                    FunctionRef<void(int32_t)> on_token) const {
  const ByteTrie& trie = parse_special ? all_ : plain_;
  size_t from = 0;  // start of the text after the last token
  for (size_t i = 0; !trie.empty() && i < text.size();) {
    const ByteTrie::Match match = trie.Longest(text.substr(i));
    if (match.size == 0) {
      ++i;
      continue;
    }
    const AddedToken& token = Find(match.id);
    size_t begin = i, end = i + match.size;
    i = end;
    if (token.single_word &&
        (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) begin = from + TrimRight(text.substr(from, begin - from)).size();
    if (token.rstrip) i = end = text.size() - TrimLeft(text.substr(end)).size();
    if (begin > from) RETURN_IF_ERROR(on_text(text.substr(from, begin - from), from == 0));
    on_token(match.id);
    from = end;
  }
  if (from < text.size()) return on_text(text.substr(from), from == 0);
  return Status();
}

}  // namespace tokamak
