#include "tokenizer/testing/reference.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"

namespace tokamak::testing {
namespace {

int32_t IdOf(const GgufVocab& spec, std::string_view text) {
  const auto it = std::find(spec.tokens.begin(), spec.tokens.end(), text);
  return it == spec.tokens.end() ? -1 : static_cast<int32_t>(it - spec.tokens.begin());
}

void Join(std::vector<std::string>& parts, size_t i) {
  parts[i] += parts[i + 1];
  parts.erase(parts.begin() + static_cast<ptrdiff_t>(i) + 1);
}

}  // namespace

std::vector<int32_t> SlowBytePairs(const GgufVocab& spec, std::string_view word) {
  std::map<std::string, size_t> rank;
  for (size_t i = 0; i < spec.merges.size(); ++i) rank.emplace(spec.merges[i], i);
  std::vector<std::string> parts;
  for (const char& c : word) parts.push_back(EncodeByteAlphabet(std::string_view(&c, 1)));
  while (true) {
    size_t best = parts.size(), best_rank = spec.merges.size();
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = rank.find(parts[i] + " " + parts[i + 1]);
      if (it != rank.end() && it->second < best_rank) {
        best = i;
        best_rank = it->second;
      }
    }
    if (best == parts.size()) break;
    Join(parts, best);
  }
  std::vector<int32_t> ids;
  for (const std::string& part : parts) ids.push_back(IdOf(spec, part));
  return ids;
}

std::vector<int32_t> SlowSentencePiece(const GgufVocab& spec, std::string_view escaped) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < escaped.size(); i += Utf8Length(escaped[i])) {
    parts.emplace_back(escaped.substr(i, Utf8Length(escaped[i])));
  }
  const auto normal = [&](std::string_view text) {
    const int32_t id = IdOf(spec, text);
    return id >= 0 && (spec.types[id] == TokenType::kNormal ||
                       spec.types[id] == TokenType::kUserDefined)
               ? id
               : -1;
  };
  while (true) {
    size_t best = parts.size();
    float best_score = -std::numeric_limits<float>::infinity();
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const int32_t id = normal(parts[i] + parts[i + 1]);
      if (id >= 0 && spec.scores[id] > best_score) {
        best = i;
        best_score = spec.scores[id];
      }
    }
    if (best == parts.size()) break;
    Join(parts, best);
  }
  std::vector<int32_t> ids;
  for (const std::string& part : parts) {
    if (const int32_t id = normal(part); id >= 0) {
      ids.push_back(id);
      continue;
    }
    for (const char byte : part) {
      static constexpr char kHex[] = "0123456789ABCDEF";
      const auto b = static_cast<uint8_t>(byte);
      ids.push_back(IdOf(spec, std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">"));
    }
  }
  return ids;
}

double BestUnigramScore(const GgufVocab& spec, std::string_view escaped, double unknown) {
  if (escaped.empty()) return 0;
  double best = -std::numeric_limits<double>::infinity();
  for (size_t size = Utf8Length(escaped[0]); size <= escaped.size();
       size += size < escaped.size() ? Utf8Length(escaped[size]) : 1) {
    const int32_t id = IdOf(spec, escaped.substr(0, size));
    double score = -std::numeric_limits<double>::infinity();
    if (id >= 0 && spec.types[id] == TokenType::kNormal) {
      score = spec.scores[id];
    } else if (size == Utf8Length(escaped[0])) {
      score = unknown;
    }
    if (score > -std::numeric_limits<double>::infinity()) {
      best = std::max(best, score + BestUnigramScore(spec, escaped.substr(size), unknown));
    }
  }
  return best;
}

}  // namespace tokamak::testing
