#include "tokenizer/bpe.h"

#include <array>
#include <atomic>
#include <deque>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/bpe_merges.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/byte_fallback.h"
#include "tokenizer/escaped_space.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/string_index.h"
#include "tokenizer/unicode.h"

namespace tokamak {
namespace {

using Symbol = BpeSymbol;

class Bpe final : public TextModel {
 public:
  Bpe(const PreTokenizerRule& rule, PreTokenizer pretokenizer, const VocabSpec& spec,
      const std::vector<std::string>& token_bytes);
  Status AddMerges(const std::vector<std::string>& merges);
  Status Encode(std::string_view text, bool starts, std::vector<int32_t>& ids) const override;

 private:
  Symbol Intern(std::string text);
  void EncodeWord(std::string_view word, BpeWord& work, std::vector<int32_t>& ids) const;
  // In a byte-level vocabulary, drops bytes without a token, so that their neighbours may merge.
  // Hugging Face's implementation, which such vocabularies come from, does the same.
  void SplitIntoSymbols(std::string_view word, BpeWord& work) const;
  bool IsToken(Symbol symbol) const { return symbol >= 0 && symbol < num_tokens_; }

  const PreTokenizerRule rule_;
  const PreTokenizer pretokenizer_;
  const int32_t num_tokens_;
  const bool lowercase_;
  StringIndex index_;               // tokens that can come from text, and symbols
  std::deque<std::string> extra_;   // strings of symbols that are not tokens
  std::array<Symbol, 256> byte_{};  // the symbol of a single byte, if any
  ByteFallback bytes_;              // for symbols that are not tokens
  BpeMerges merges_;
  // Remembers tokens whose own text was seen to merge to that token, which saves merging most words
  // again. Relaxed atomics, because all threads write the same value.
  mutable std::vector<std::atomic<bool>> whole_;
};

Bpe::Bpe(const PreTokenizerRule& rule, PreTokenizer pretokenizer, const VocabSpec& spec,
         const std::vector<std::string>& token_bytes)
    : rule_(rule),
      pretokenizer_(std::move(pretokenizer)),
      num_tokens_(static_cast<int32_t>(token_bytes.size())),
      lowercase_(spec.lowercase),
      index_(token_bytes.size()),
      // No unknown token: checkpoints name their end token as unknown, and ordinary text must not
      // produce that.
      bytes_(spec, /*unk=*/-1),
      merges_(spec.merges.size()),
      whole_(token_bytes.size()) {
  std::string bytes;
  for (int32_t id = 0; id < num_tokens_; ++id) {
    const TokenType type = spec.types.empty() ? TokenType::kNormal : spec.types[id];
    if (type == TokenType::kControl || type == TokenType::kUnknown || token_bytes[id].empty()) {
      continue;
    }
    if (type == TokenType::kByte) continue;
    // Skips added tokens that are spelled as plain text, such as "  ". They are found in the text
    // before words are merged, and merges only produce spellings in the alphabet.
    if (rule_.byte_level && !DecodeByteAlphabet(spec.tokens[id], bytes)) continue;
    if (rule_.byte_level && bytes != token_bytes[id]) continue;
    index_.Insert(rule_.byte_level ? std::string_view(token_bytes[id]) : spec.tokens[id], id);
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
      // A part outside the alphabet cannot occur in text, so the merge never applies.
      if (!DecodeByteAlphabet(left, bytes)) continue;
      left.swap(bytes);
      if (!DecodeByteAlphabet(right, bytes)) continue;
      right.swap(bytes);
    }
    const Symbol l = Intern(left);
    const Symbol r = Intern(right);
    const Symbol result = Intern(left + right);
    merges_.Insert(l, r, static_cast<uint32_t>(i), result);
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
  BpeWord work;
  return pretokenizer_.Split(text, [&](std::string_view word) { EncodeWord(word, work, ids); });
}

void Bpe::EncodeWord(std::string_view word, BpeWord& work, std::vector<int32_t>& ids) const {
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
  merges_.Apply(work);
  if (is_token && work.nodes[0].symbol == found && work.nodes[0].next < 0) {
    whole_[found].store(true, std::memory_order_relaxed);
  }
  for (int32_t i = 0; i >= 0; i = work.nodes[i].next) {
    const BpeWord::Node& node = work.nodes[i];
    if (IsToken(node.symbol)) {
      ids.push_back(node.symbol);
      continue;
    }
    for (const char& byte : word.substr(node.begin, node.size)) {
      bytes_.Append(std::string_view(&byte, 1), /*after_unknown=*/false, ids);
    }
  }
}

void Bpe::SplitIntoSymbols(std::string_view word, BpeWord& work) const {
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

}  // namespace

Result<std::unique_ptr<const TextModel>> CreateBpe(const VocabSpec& spec,
                                                   const std::vector<std::string>& token_bytes) {
  const PreTokenizerRule* rule = FindPreTokenizer(spec.pre_tokenizer);
  if (rule == nullptr) {
    return Unimplemented("unknown pre-tokenizer \"{}\"", ToValidUtf8(spec.pre_tokenizer));
  }
  if (spec.merges.empty()) {
    return InvalidArgument("the vocabulary has no merges; byte-pair encoding needs them");
  }
  ASSIGN_OR_RETURN(PreTokenizer pretokenizer, PreTokenizer::Create(*rule));
  auto model = std::make_unique<Bpe>(*rule, std::move(pretokenizer), spec, token_bytes);
  RETURN_IF_ERROR(model->AddMerges(spec.merges));
  return std::unique_ptr<const TextModel>(std::move(model));
}

}  // namespace tokamak
