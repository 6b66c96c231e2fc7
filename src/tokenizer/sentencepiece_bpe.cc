#include "tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/bpe_merges.h"
#include "tokenizer/byte_tokens.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/escaped_space.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/string_index.h"

namespace tokamak {
namespace {

// The symbol of a user-defined token found in the text. It merges with nothing.
BpeSymbol Frozen(int32_t id) { return -2 - id; }
bool IsFrozen(BpeSymbol symbol) { return symbol <= Frozen(0); }

// Ranks of token ids by descending score; equal scores have equal ranks.
std::vector<uint32_t> RanksOf(const std::vector<double>& scores) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  std::vector<uint32_t> ranks(scores.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && scores[order[i]] != scores[order[i - 1]]) ++rank;
    ranks[order[i]] = rank;
  }
  return ranks;
}

class SentencePieceBpe final : public TextModel {
 public:
  explicit SentencePieceBpe(const VocabSpec& spec)
      : ranks_(RanksOf(spec.pipeline.scores)),
        unk_(spec.pipeline.unk),
        byte_tokens_(spec),
        index_(spec.tokens.size()),
        whole_(spec.tokens.size()) {
    std::vector<std::pair<std::string_view, int32_t>> frozen;
    for (size_t i = 0; i < spec.tokens.size(); ++i) {
      const TokenType type = spec.types[i];
      const auto id = static_cast<int32_t>(i);
      if (spec.tokens[i].empty() || !spec.pipeline.in_model[i]) continue;
      // Ordinary text must not produce control tokens.
      if (type == TokenType::kControl || type == TokenType::kUnknown) continue;
      index_.Insert(spec.tokens[i], id);
      by_words_ = by_words_ && WordStart(spec.tokens[i], 0) == std::string_view::npos;
      if (!spec.pipeline.sentencepiece) continue;
      if (type == TokenType::kUserDefined) frozen.emplace_back(spec.tokens[i], id);
      if (type == TokenType::kUnused) {
        unused_.resize(spec.tokens.size());
        unused_[i] = true;
        by_words_ = false;  // Workspace::splits must cover the whole text
      }
    }
    frozen_ = ByteTrie(std::move(frozen));
  }
  void Encode(std::string_view text, EncodeScratch& scratch,
              std::vector<int32_t>& ids) const override;
  bool can_encode_anything() const { return unk_ >= 0 || byte_tokens_.complete(); }

 private:
  struct Workspace {
    std::string_view text;  // being merged
    BpeWord& word;
    // For each unused token, the size of the left part in the last merge proposed for it.
    std::unordered_map<int32_t, uint32_t> splits;
  };
  // Start of the next word after `from`: a ▁ that follows something else. npos if none.
  static size_t WordStart(std::string_view text, size_t from) {
    for (size_t at = from; (at = text.find(kEscapedSpace, at)) != std::string_view::npos;) {
      if (at > from && !text.substr(0, at).ends_with(kEscapedSpace)) return at;
      at += kEscapedSpace.size();
    }
    return std::string_view::npos;
  }
  void EncodeWord(Workspace& work, bool& unknown, std::vector<int32_t>& ids) const;
  void Split(Workspace& work) const;
  // Appends the tokens of a part of the text whose token is `id` (or none).
  void Emit(const Workspace& work, std::string_view part, int32_t id, bool& unknown,
            std::vector<int32_t>& ids) const;
  bool IsUnused(int32_t id) const { return id >= 0 && !unused_.empty() && unused_[id]; }

  const std::vector<uint32_t> ranks_;  // by id
  const int32_t unk_;
  const ByteTokens byte_tokens_;
  StringIndex index_;
  ByteTrie frozen_;
  std::vector<bool> unused_;  // by id; empty: none is
  // No token spans two words, so words are merged one by one.
  bool by_words_ = true;
  // Remembers tokens whose own text was seen to merge to that token. Relaxed atomics, because all
  // threads write the same value.
  mutable std::vector<std::atomic<bool>> whole_;
};

void SentencePieceBpe::Encode(std::string_view text, EncodeScratch& scratch,
                              std::vector<int32_t>& ids) const {
  Workspace work{{}, scratch.word, {}};
  bool unknown = false;
  while (!text.empty()) {
    const size_t end = by_words_ ? WordStart(text, 0) : std::string_view::npos;
    work.text = text.substr(0, end);
    EncodeWord(work, unknown, ids);
    text.remove_prefix(work.text.size());
  }
}

void SentencePieceBpe::EncodeWord(Workspace& work, bool& unknown, std::vector<int32_t>& ids) const {
  const int32_t found = work.text.size() <= index_.longest() ? index_.Find(work.text) : -1;
  if (found >= 0 && whole_[static_cast<size_t>(found)].load(std::memory_order_relaxed)) {
    ids.push_back(found);
    unknown = false;
    return;
  }
  Split(work);
  const auto find = [&](const BpeWord::Node& left, const BpeWord::Node& right) -> BpeMerge {
    const size_t size = size_t{left.size} + right.size;
    if (size > index_.longest() || IsFrozen(left.symbol) || IsFrozen(right.symbol)) return {};
    const int32_t id = index_.Find(work.text.substr(left.begin, size));
    if (id == StringIndex::kMissing) return {};
    if (IsUnused(id)) work.splits[id] = left.size;
    return {ranks_[static_cast<size_t>(id)], id};
  };
  ApplyMerges(work.word, find);
  const BpeWord::Node& first = work.word.nodes[0];
  if (found >= 0 && first.symbol == found && first.next < 0 && !IsUnused(found)) {
    whole_[static_cast<size_t>(found)].store(true, std::memory_order_relaxed);
  }
  for (int32_t i = 0; i >= 0; i = work.word.nodes[i].next) {
    const BpeWord::Node& node = work.word.nodes[i];
    const int32_t id = IsFrozen(node.symbol) ? Frozen(node.symbol) : node.symbol;
    Emit(work, work.text.substr(node.begin, node.size), id, unknown, ids);
  }
}

void SentencePieceBpe::Split(Workspace& work) const {
  work.word.Clear();
  for (size_t begin = 0; begin < work.text.size();) {
    if (!frozen_.empty()) {
      if (const auto match = frozen_.Longest(work.text.substr(begin)); match.size > 0) {
        work.word.Append(Frozen(match.id), begin, match.size);
        begin += match.size;
        continue;
      }
    }
    const size_t size = Utf8Length(work.text[begin]);
    work.word.Append(index_.Find(work.text.substr(begin, size)), begin, size);
    begin += size;
  }
  work.word.Close();
}

// Recurses at most as deep as a token has characters.
void SentencePieceBpe::Emit(const Workspace& work, std::string_view part, int32_t id, bool& unknown,
                            std::vector<int32_t>& ids) const {
  if (IsUnused(id)) {
    if (const auto split = work.splits.find(id); split != work.splits.end()) {
      const std::string_view left = part.substr(0, split->second);
      const std::string_view right = part.substr(split->second);
      Emit(work, left, index_.Find(left), unknown, ids);
      Emit(work, right, index_.Find(right), unknown, ids);
      return;
    }
    id = StringIndex::kMissing;
  }
  if (id >= 0) {
    ids.push_back(id);
    unknown = false;
    return;
  }
  const bool was_unknown = std::exchange(unknown, !byte_tokens_.Cover(part));
  if (!unknown) {
    for (const char byte : part) ids.push_back(byte_tokens_[byte]);
  } else if (!was_unknown) {
    ids.push_back(unk_);  // one for adjacent unknown characters
  }
}

}  // namespace

Result<std::unique_ptr<const TextModel>> CreateSentencePieceBpe(const VocabSpec& spec) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (std::isnan(spec.pipeline.scores[id])) return InvalidArgument("token {} scores NaN", id);
  }
  auto model = std::make_unique<SentencePieceBpe>(spec);
  if (!model->can_encode_anything()) {
    return InvalidArgument("the vocabulary has neither an unknown token nor tokens for all bytes");
  }
  return std::unique_ptr<const TextModel>(std::move(model));
}

}  // namespace tokamak
