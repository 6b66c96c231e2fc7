#include "local/forced_tokens.h"

#include "base/utf8.h"
#include "grammar/grammar.h"

namespace tokamak {
namespace {

// Few tokens are longer.
constexpr size_t kTokenBytes = 8;

// -1: there is none.
TokenId SpecialToken(std::string_view name, const ConstraintTokens& tokens) {
  TokenId token = -1;
  for (const TokenId id : tokens.special) {
    if (tokens.bytes[static_cast<size_t>(id)] == name) token = id;
  }
  return token;
}

}  // namespace

std::vector<TokenId> TokensWithin(std::string_view text, const ConstraintTokens& tokens) {
  if (tokens.tokenizer == nullptr) return {};
  const Tokenizer& tokenizer = *tokens.tokenizer;
  text = text.substr(0, ValidUtf8Prefix(text));
  // SentencePiece kinds put a space before a text, which the line break keeps away from this one.
  std::string whole = tokenizer.drops_leading_space() ? "\n" : "";
  whole += text;
  const Result<std::vector<int32_t>> ids = tokenizer.Encode(whole, {.add_special = false});
  if (!ids.ok()) return {};
  size_t begin = ids->size();
  while (!text.empty()) {
    const std::string_view piece = begin > 0 ? tokenizer.TokenPiece((*ids)[begin - 1]) : "";
    if (piece.empty() || !text.ends_with(piece)) return {};
    text.remove_suffix(piece.size());
    --begin;
  }
  return {ids->begin() + static_cast<std::ptrdiff_t>(begin), ids->end()};
}

std::vector<TokenId> TokensOfForced(FunctionRef<std::string(size_t)> text, int32_t most,
                                    const ConstraintTokens& tokens) {
  if (tokens.tokenizer == nullptr || most <= 0) return {};
  const auto count = static_cast<size_t>(most);
  const std::string forced = text(kTokenBytes * (count + 1));
  std::vector<TokenId> result;
  for (std::string_view rest = forced; !rest.empty() && result.size() < count;) {
    const size_t mark = rest.find(kGrammarMark);
    if (mark != 0) {
      std::vector<TokenId> ids = TokensWithin(rest.substr(0, mark), tokens);
      // The last token may be longer in the end, unless a special token follows.
      if (mark == rest.npos && !ids.empty()) ids.pop_back();
      result.insert(result.end(), ids.begin(), ids.end());
      if (mark == rest.npos || ids.empty()) break;
      rest.remove_prefix(mark);
    }
    const size_t end = rest.find(kGrammarMark, 1);
    if (end == rest.npos) break;
    const TokenId token = SpecialToken(rest.substr(1, end - 1), tokens);
    if (token < 0) break;
    result.push_back(token);
    rest.remove_prefix(end + 1);
  }
  if (result.size() > count) result.resize(count);
  return result;
}

}  // namespace tokamak
