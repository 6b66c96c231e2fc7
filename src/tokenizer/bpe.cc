#include "tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <deque>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/byte_fallback.h"
#include "tokenizer/escaped_space.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/string_index.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace tokamak {
namespace {

// Symbols are the strings that take part in merges: tokens by their id, others numbered after them.
using Symbol = int32_t;
constexpr Symbol kNoSymbol = -1;

struct Merge {
  uint64_t pair = kEmpty;  // left << 32 | right
  uint32_t rank = 0;
  Symbol result = kNoSymbol;

  static constexpr uint64_t kEmpty = ~uint64_t{0};
};

// Merges by their two symbols: open addressing, at most half full.
class MergeTable {
 public:
  explicit MergeTable(size_t capacity) : slots_(std::bit_ceil(2 * capacity + 2)) {}

  // Keeps the first merge of a pair.
  void Insert(const Merge& merge) {
    Merge& slot = const_cast<Merge&>(Slot(merge.pair));
    if (slot.pair == Merge::kEmpty) slot = merge;
  }
  // The merge of two symbols, or null.
  const Merge* Find(Symbol left, Symbol right) const {
    if (left < 0 || right < 0) return nullptr;
    const Merge& slot = Slot(Pair(left, right));
    return slot.pair == Merge::kEmpty ? nullptr : &slot;
  }
  static uint64_t Pair(Symbol left, Symbol right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

 private:
  const Merge& Slot(uint64_t pair) const {
    uint64_t hash = pair * 0x9E3779B97F4A7C15u;  // Fibonacci hashing
    hash ^= hash >> 32;
    for (size_t i = hash;; ++i) {
      const Merge& slot = slots_[i & (slots_.size() - 1)];
      if (slot.pair == pair || slot.pair == Merge::kEmpty) return slot;
    }
  }
  std::vector<Merge> slots_;
};

// A word being merged: a linked list of symbols, and a heap of the merges that may be next.
struct Workspace {
  struct Node {
    Symbol symbol;
    int32_t previous, next;  // -1: none
    uint32_t begin, size;    // in the word
  };
  struct Candidate {
    uint64_t key;  // rank << 32 | index of the left node: the best merge, leftmost first
    Symbol left, right;
    Symbol result;
    bool operator<(const Candidate& other) const { return key > other.key; }  // for a min-heap
  };
  std::vector<Node> nodes;
  std::vector<Candidate> heap;
};

class Bpe final : public TextModel {
 public:
  Bpe(const PreTokenizerRule& rule, PreTokenizer pretokenizer, const VocabSpec& spec,
      const std::vector<std::string>& pieces);
  Status AddMerges(const std::vector<std::string>& merges);
  Status Encode(std::string_view text, bool starts, std::vector<int32_t>& ids) const override;

 private:
  Symbol Intern(std::string text);
  void EncodeWord(std::string_view word, Workspace& work, std::vector<int32_t>& ids) const;
  // Bytes that are no token in a byte-level vocabulary are left out, and their neighbours may
  // merge: so does Hugging Face's implementation, which such vocabularies come from.
  void SplitIntoSymbols(std::string_view word, Workspace& work) const;
  void MergeAll(Workspace& work) const;
  void Propose(Workspace& work, int32_t left) const;
  bool IsToken(Symbol symbol) const { return symbol >= 0 && symbol < num_tokens_; }

  const PreTokenizerRule rule_;
  const PreTokenizer pretokenizer_;
  const int32_t num_tokens_;
  const bool lowercase_;
  StringIndex index_;               // tokens that text can give, and symbols
  std::deque<std::string> extra_;   // the strings of symbols that are not tokens
  std::array<Symbol, 256> byte_{};  // the symbol of a single byte, if any
  ByteFallback bytes_;              // for symbols that are not tokens
  MergeTable merges_;
  // Whether merging a token's own text gives that token, once that has been seen. Most words of a
  // text are tokens: this saves merging them again. Relaxed atomics: every thread would write the
  // same.
  mutable std::vector<std::atomic<bool>> whole_;
};

Bpe::Bpe(const PreTokenizerRule& rule, PreTokenizer pretokenizer, const VocabSpec& spec,
         const std::vector<std::string>& pieces)
    : rule_(rule),
      pretokenizer_(std::move(pretokenizer)),
      num_tokens_(static_cast<int32_t>(pieces.size())),
      lowercase_(spec.lowercase),
      index_(pieces.size()),
      // No unknown token: checkpoints name their end token as such, and that must not come out of
      // ordinary text.
      bytes_(spec, pieces, /*unk=*/-1),
      merges_(spec.merges.size()),
      whole_(pieces.size()) {
  std::string bytes;
  for (int32_t id = 0; id < num_tokens_; ++id) {
    const TokenType type = spec.types.empty() ? TokenType::kNormal : spec.types[id];
    if (type == TokenType::kControl || type == TokenType::kUnknown || pieces[id].empty()) continue;
    if (type == TokenType::kByte) continue;
    // An added token spelled as plain text ("  ") is found by its text, before words are merged; as
    // the result of merges it could only be spelled in the alphabet.
    if (rule_.byte_level && !DecodeByteAlphabet(spec.tokens[id], bytes)) continue;
    if (rule_.byte_level && bytes != pieces[id]) continue;
    index_.Insert(rule_.byte_level ? std::string_view(pieces[id]) : spec.tokens[id], id);
  }
}

Symbol Bpe::Intern(std::string text) {
  const Symbol known = index_.Find(text);
  if (known != StringIndex::kMissing) return known;
  const auto symbol = static_cast<Symbol>(num_tokens_ + extra_.size());
  extra_.push_back(std::move(text));
  index_.Insert(extra_.back(), symbol);
  return symbol;
}

Status Bpe::AddMerges(const std::vector<std::string>& merges) {
  std::string left, right;
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string_view text = merges[i];
    const size_t space = text.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == text.size() ||
        ValidUtf8Prefix(text) != text.size()) {
      return InvalidArgument("merge {} is \"{}\", expected two parts with a space between", i,
                             ToValidUtf8(text));
    }
    left = text.substr(0, space);
    right = text.substr(space + 1);
    if (rule_.byte_level) {
      std::string bytes;
      // A part outside the alphabet cannot occur in text: the merge never applies.
      if (!DecodeByteAlphabet(left, bytes)) continue;
      left.swap(bytes);
      if (!DecodeByteAlphabet(right, bytes)) continue;
      right.swap(bytes);
    }
    const Symbol l = Intern(left);
    const Symbol r = Intern(right);
    const Symbol result = Intern(left + right);
    merges_.Insert({MergeTable::Pair(l, r), static_cast<uint32_t>(i), result});
  }
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    byte_[b] = index_.Find(std::string_view(&byte, 1));
    if (IsToken(byte_[b])) bytes_.Set(byte, byte_[b]);
  }
  return Status();
}

Status Bpe::Encode(std::string_view text, bool /*starts*/, std::vector<int32_t>& ids) const {
  std::string changed;
  if (rule_.nfc) {
    changed = NormalizeNfc(text);
    text = changed;
  }
  if (rule_.escape_spaces) {
    std::string escaped;
    AppendEscapedSpaces(text, escaped);
    changed.swap(escaped);
    text = changed;
  }
  if (rule_.drop_between && lowercase_) {
    std::string lowered;
    for (size_t offset = 0; offset < text.size();) {
      AppendLowerCase(NextCodePoint(text, offset), lowered);
    }
    changed.swap(lowered);
    text = changed;
  }
  Workspace work;
  return pretokenizer_.Split(text, [&](std::string_view word) { EncodeWord(word, work, ids); });
}

void Bpe::EncodeWord(std::string_view word, Workspace& work, std::vector<int32_t>& ids) const {
  const Symbol found = index_.Find(word);
  const bool is_token = IsToken(found);
  if (is_token) {
    const bool newlines =
        rule_.whole_newlines && word.find_first_not_of('\n') == std::string_view::npos;
    if (rule_.ignore_merges || newlines || whole_[found].load(std::memory_order_relaxed)) {
      ids.push_back(found);
      return;
    }
  }
  SplitIntoSymbols(word, work);
  if (work.nodes.empty()) return;
  MergeAll(work);
  if (is_token && work.nodes[0].symbol == found && work.nodes[0].next < 0) {
    whole_[found].store(true, std::memory_order_relaxed);
  }
  for (int32_t i = 0; i >= 0; i = work.nodes[i].next) {
    const Workspace::Node& node = work.nodes[i];
    if (IsToken(node.symbol)) {
      ids.push_back(node.symbol);
      continue;
    }
    for (const char& byte : word.substr(node.begin, node.size)) {
      bytes_.Append(std::string_view(&byte, 1), /*after_unknown=*/false, ids);
    }
  }
}

void Bpe::SplitIntoSymbols(std::string_view word, Workspace& work) const {
  work.nodes.clear();
  for (size_t begin = 0; begin < word.size();) {
    const size_t size = rule_.byte_level ? 1 : Utf8Length(word[begin]);
    const Symbol symbol = size == 1 ? byte_[static_cast<uint8_t>(word[begin])]
                                    : index_.Find(word.substr(begin, size));
    if (rule_.byte_level && !IsToken(symbol)) {
      begin += size;
      continue;
    }
    const auto index = static_cast<int32_t>(work.nodes.size());
    work.nodes.push_back(
        {symbol, index - 1, index + 1, static_cast<uint32_t>(begin), static_cast<uint32_t>(size)});
    begin += size;
  }
  if (!work.nodes.empty()) work.nodes.back().next = -1;
}

// Applies the best merge, leftmost first, until none applies. O(n log n) in the word's length.
void Bpe::MergeAll(Workspace& work) const {
  std::vector<Workspace::Candidate>& heap = work.heap;
  heap.clear();
  const auto count = static_cast<int32_t>(work.nodes.size());
  for (int32_t i = 0; i + 1 < count; ++i) Propose(work, i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Workspace::Candidate best = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(best.key & 0xFFFFFFFFu);
    Workspace::Node& left = work.nodes[at];
    // Outdated when either side has been merged since: its symbol is another, or it is gone.
    if (left.size == 0 || left.symbol != best.left || left.next < 0) continue;
    Workspace::Node& right = work.nodes[left.next];
    if (right.symbol != best.right) continue;
    left.symbol = best.result;
    left.size += right.size;
    left.next = right.next;
    right.size = 0;
    if (left.next >= 0) work.nodes[left.next].previous = at;
    if (left.previous >= 0) Propose(work, left.previous);
    Propose(work, at);
  }
}

void Bpe::Propose(Workspace& work, int32_t left) const {
  const Workspace::Node& node = work.nodes[left];
  if (node.next < 0) return;
  const Symbol right = work.nodes[node.next].symbol;
  const Merge* merge = merges_.Find(node.symbol, right);
  if (merge == nullptr) return;
  work.heap.push_back({uint64_t{merge->rank} << 32 | static_cast<uint32_t>(left), node.symbol,
                       right, merge->result});
  std::push_heap(work.heap.begin(), work.heap.end());
}

}  // namespace

Result<std::unique_ptr<const TextModel>> CreateBpe(const VocabSpec& spec,
                                                   const std::vector<std::string>& pieces) {
  const PreTokenizerRule* rule = FindPreTokenizer(spec.pre_tokenizer);
  if (rule == nullptr) {
    return Unimplemented("unknown pre-tokenizer \"{}\"", ToValidUtf8(spec.pre_tokenizer));
  }
  if (spec.merges.empty()) {
    return InvalidArgument("the vocabulary has no merges; byte-pair encoding needs them");
  }
  ASSIGN_OR_RETURN(PreTokenizer pretokenizer, PreTokenizer::Create(*rule));
  auto model = std::make_unique<Bpe>(*rule, std::move(pretokenizer), spec, pieces);
  RETURN_IF_ERROR(model->AddMerges(spec.merges));
  return std::unique_ptr<const TextModel>(std::move(model));
}

}  // namespace tokamak
