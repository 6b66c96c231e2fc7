#include "tokenizer/tiktoken.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/base64.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/ranked_vocab.h"
#include "tokenizer/tiktoken_families.h"

namespace tokamak {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;

// Cuts the next line off `text` and returns it without its end.
std::string_view CutLine(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
  return line;
}

// Parses "IQ== 0". Returns false for anything else.
bool ParseLine(std::string_view line, std::string& token, size_t& rank) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return false;
  const char* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + space + 1, end, rank);
  return error == std::errc() && stop == end && DecodeBase64(line.substr(0, space), token);
}

Result<std::vector<std::string>> ReadRanks(std::string_view text, const std::string& source) {
  std::vector<std::string> tokens;
  std::string token;
  const size_t lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  size_t rank = 0, number = 0, count = 0;
  while (!text.empty()) {
    ++number;
    const std::string_view line = CutLine(text);
    if (line.empty()) continue;
    if (!ParseLine(line, token, rank) || token.empty()) {
      return InvalidArgument("{}: line {}: \"{}\" is not a token in base64 and its rank", source,
                             number, ToValidUtf8(line.substr(0, 80)));
    }
    // In a file with all ranks, none is this large.
    if (rank >= lines || rank >= kMaxTokens) {
      return InvalidArgument(
          "{}: line {}: the rank is {} in a file of {} lines, but ranks have no gaps", source,
          number, rank, lines);
    }
    if (rank >= tokens.size()) tokens.resize(rank + 1);
    if (!tokens[rank].empty()) {
      return InvalidArgument("{}: line {}: the rank {} appears twice", source, number, rank);
    }
    tokens[rank] = token;
    ++count;
  }
  if (count != tokens.size()) {
    const auto hole = std::find(tokens.begin(), tokens.end(), std::string());
    return InvalidArgument("{}: rank {} is missing, but there is a rank {}", source,
                           hole - tokens.begin(), tokens.size() - 1);
  }
  if (tokens.empty()) return InvalidArgument("{}: there are no tokens", source);
  return tokens;
}

}  // namespace

Result<VocabSpec> ParseTiktoken(std::string_view text, const std::string& source,
                                std::string_view tokenizer_class) {
  RankedVocab ranked;
  ASSIGN_OR_RETURN(ranked.tokens, ReadRanks(text, source));
  const TiktokenFamily* family = FindTiktokenFamily(ranked.tokens, tokenizer_class);
  if (family == nullptr) {
    return Unimplemented(
        "{}: the {} ranks (digest {:016x}) belong to no known family. Splitting rules and special "
        "tokens are known for {}; other models need a tokenizer.json",
        source, ranked.tokens.size(), DigestOfRanks(ranked.tokens), TiktokenFamilyNames());
  }
  const auto count = static_cast<int32_t>(ranked.tokens.size());
  int32_t id = count;
  for (std::string& name : family->special(count)) ranked.special.emplace_back(id++, name);
  ranked.pattern = family->pattern;
  ranked.nfc = family->nfc;
  ASSIGN_OR_RETURN(VocabSpec vocab, MakeRankedVocab(ranked, source));
  for (const auto& [special_id, name] : ranked.special) {
    if (name == family->bos) vocab.special.bos = special_id;
    if (name == family->eos) vocab.special.eos = special_id;
  }
  vocab.add_bos = family->add_bos;
  return vocab;
}

bool IsTiktoken(std::string_view text) {
  std::string_view line;
  while (line.empty() && !text.empty()) line = CutLine(text);
  std::string token;
  size_t rank = 0;
  return line.size() < 4096 && ParseLine(line, token, rank);
}

}  // namespace tokamak
