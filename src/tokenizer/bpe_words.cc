// Byte-pair encoding of pieces (Sennrich et al. 2016, arXiv:1508.07909) as in the `tokenizers`
// library, or with the merges of strings that GGUF files have.
#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <string>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/bpe_merges.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/byte_tokens.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/string_index.h"
#include "tokenizer/word_models.h"

namespace tokamak {
namespace {

class BpeWords final : public TextModel {
 public:
  BpeWords(const VocabSpec& spec, bool bytes);
  Status AddMerges(const PipelineSpec& spec);
  void Encode(std::string_view piece, EncodeScratch& scratch,
              std::vector<int32_t>& ids) const override;

 private:
  bool IsToken(BpeSymbol symbol) const { return symbol >= 0 && symbol < num_tokens_; }
  bool IsWhole(int32_t id, std::string_view piece) const;
  // The symbol of a string that a merge names, or kNoBpeSymbol.
  BpeSymbol SymbolOf(std::string_view text);
  void Split(std::string_view piece, EncodeScratch& scratch) const;
  // Appends the byte tokens of a character. If one is missing, returns false and appends none.
  bool AppendBytes(std::string_view character, size_t begin, BpeWord& word) const;

  const bool bytes_;
  const bool ignore_merges_, whole_newlines_, fuse_unk_, merge_by_id_, merge_strings_;
  const int32_t unk_;
  const int32_t num_tokens_;
  const std::string prefix_, suffix_;  // of tokens inside a word, and at its end
  const bool affixes_;                 // either is set
  std::string decoded_;                // if bytes_: the bytes of all tokens
  std::deque<std::string> extra_;      // strings of symbols that are not tokens
  StringIndex index_;                  // tokens and other symbols
  const ByteTokens byte_tokens_;
  std::array<BpeSymbol, 256> single_;  // symbols of one byte, or -1
  BpeMerges merges_;
  // Remembers tokens whose own text was seen to merge to that token, which saves merging most words
  // again. Relaxed atomics, because all threads write the same value.
  mutable std::vector<std::atomic<bool>> whole_;
};

BpeWords::BpeWords(const VocabSpec& spec, bool bytes)
    : bytes_(bytes),
      ignore_merges_(spec.pipeline.ignore_merges),
      whole_newlines_(spec.pipeline.whole_newlines),
      fuse_unk_(spec.pipeline.fuse_unk),
      merge_by_id_(spec.pipeline.merge_by_id),
      merge_strings_(spec.pipeline.merge_strings),
      unk_(spec.pipeline.unk),
      num_tokens_(static_cast<int32_t>(spec.tokens.size())),
      prefix_(spec.pipeline.continuing_prefix),
      suffix_(spec.pipeline.word_suffix),
      affixes_(!prefix_.empty() || !suffix_.empty()),
      index_(spec.tokens.size()),
      byte_tokens_(spec),
      merges_(spec.pipeline.merges.size()),
      whole_(spec.tokens.size()) {
  if (bytes_) {
    size_t most = 0;  // the spelling of a token is at least as long as its bytes
    for (const std::string& token : spec.tokens) most += token.size();
    decoded_.reserve(most);
  }
  std::string decoded;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    std::string_view text = spec.tokens[i];
    if (!spec.pipeline.in_model[i] || text.empty()) continue;
    if (bytes_) {
      // A token spelled outside the alphabet cannot come from text.
      if (!DecodeByteAlphabet(text, decoded)) continue;
      text = {decoded_.data() + decoded_.size(), decoded.size()};
      decoded_ += decoded;
    }
    index_.Insert(text, id);
  }
}

BpeSymbol BpeWords::SymbolOf(std::string_view text) {
  const BpeSymbol known = index_.Find(text);
  if (known >= 0 || !merge_strings_) return known;
  const auto symbol = num_tokens_ + static_cast<BpeSymbol>(extra_.size());
  index_.Insert(extra_.emplace_back(text), symbol);
  return symbol;
}

Status BpeWords::AddMerges(const PipelineSpec& spec) {
  std::string left_bytes, right_bytes, merged;
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    std::string_view left = spec.merges[i].first, right = spec.merges[i].second;
    if (bytes_) {
      // A part outside the alphabet cannot occur in text, so the merge never applies.
      if (!DecodeByteAlphabet(left, left_bytes) || !DecodeByteAlphabet(right, right_bytes))
        continue;
      left = left_bytes;
      right = right_bytes;
    }
    const BpeSymbol l = SymbolOf(left), r = SymbolOf(right);
    merged = left;
    merged += right.substr(std::min(prefix_.size(), right.size()));
    const BpeSymbol result = SymbolOf(merged);
    if (l < 0 || r < 0 || result < 0) {
      return InvalidArgument("merge {} (\"{}\" and \"{}\"): {} is not in the vocabulary", i,
                             ToValidUtf8(spec.merges[i].first), ToValidUtf8(spec.merges[i].second),
                             l < 0   ? "the first"
                             : r < 0 ? "the second"
                                     : "the result");
    }
    merges_.Insert(l, r, static_cast<uint32_t>(i), result);
  }
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    const BpeSymbol symbol = index_.Find({&byte, 1});
    single_[static_cast<size_t>(b)] = bytes_ && !IsToken(symbol) ? kNoBpeSymbol : symbol;
  }
  return Status();
}

bool BpeWords::AppendBytes(std::string_view character, size_t begin, BpeWord& word) const {
  if (!byte_tokens_.Cover(character)) return false;
  for (size_t i = 0; i < character.size(); ++i) {
    word.Append(byte_tokens_[character[i]], begin + i, 1);
  }
  return true;
}

void BpeWords::Split(std::string_view piece, EncodeScratch& scratch) const {
  BpeWord& word = scratch.word;
  word.Clear();
  if (bytes_) {
    // Bytes without a token are dropped, so that their neighbours may merge.
    for (size_t i = 0; i < piece.size(); ++i) {
      const BpeSymbol symbol = single_[static_cast<uint8_t>(piece[i])];
      if (symbol >= 0) word.Append(symbol, i, 1);
    }
    return word.Close();
  }
  size_t unknown = 0;  // bytes of characters waiting to become an unknown token
  const auto flush = [&](size_t at) {
    if (unknown > 0) word.Append(unk_, at - unknown, unknown);
    unknown = 0;
  };
  for (size_t begin = 0; begin < piece.size();) {
    const size_t size = Utf8Length(piece[begin]);
    const std::string_view character = piece.substr(begin, size);
    BpeSymbol symbol = kNoBpeSymbol;
    if (affixes_) {
      std::string& spelled = scratch.spelled;
      spelled = begin > 0 ? prefix_ : "";
      spelled += character;
      if (begin + size == piece.size()) spelled += suffix_;
      symbol = index_.Find(spelled);
    } else {
      symbol = size == 1 ? single_[static_cast<uint8_t>(piece[begin])] : index_.Find(character);
    }
    if (symbol >= 0 || merge_strings_) {
      flush(begin);
      word.Append(symbol, begin, size);
    } else if (AppendBytes(character, begin, word)) {
      // A waiting unknown token comes after these, as in the reference.
    } else if (unk_ >= 0) {
      if (!fuse_unk_) flush(begin);
      unknown += size;
    }  // else it is dropped
    begin += size;
  }
  flush(piece.size());
  word.Close();
}

bool BpeWords::IsWhole(int32_t id, std::string_view piece) const {
  return ignore_merges_ || whole_[static_cast<size_t>(id)].load(std::memory_order_relaxed) ||
         (whole_newlines_ && piece.find_first_not_of('\n') == std::string_view::npos);
}

void BpeWords::Encode(std::string_view piece, EncodeScratch& scratch,
                      std::vector<int32_t>& ids) const {
  const BpeSymbol found = index_.Find(piece);
  if (IsToken(found) && IsWhole(found, piece)) {
    ids.push_back(found);
    return;
  }
  Split(piece, scratch);
  BpeWord& word = scratch.word;
  if (word.nodes.empty()) return;
  if (merge_by_id_) {
    ApplyMerges(word, [&](const BpeWord::Node& left, const BpeWord::Node& right) -> BpeMerge {
      const int32_t id = index_.Find(piece.substr(left.begin, size_t{left.size} + right.size));
      return {static_cast<uint32_t>(id), id};
    });
  } else {
    merges_.Apply(word);
  }
  if (IsToken(found) && word.nodes[0].symbol == found && word.nodes[0].next < 0) {
    whole_[static_cast<size_t>(found)].store(true, std::memory_order_relaxed);
  }
  for (int32_t i = 0; i >= 0; i = word.nodes[i].next) {
    const BpeWord::Node& node = word.nodes[i];
    if (IsToken(node.symbol)) {
      ids.push_back(node.symbol);
      continue;
    }
    for (const char byte : piece.substr(node.begin, node.size)) {
      const int32_t id = bytes_ ? single_[static_cast<uint8_t>(byte)] : byte_tokens_[byte];
      if (id >= 0) ids.push_back(id);
    }
  }
}

}  // namespace

bool HasByteAlphabet(const VocabSpec& spec) {
  std::array<bool, 256> seen{};
  std::string bytes;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    // A letter of the alphabet has one or two bytes.
    if (!spec.pipeline.in_model[id] || spec.tokens[id].size() > 2) continue;
    if (!DecodeByteAlphabet(spec.tokens[id], bytes)) continue;
    if (bytes.size() == 1) seen[static_cast<uint8_t>(bytes[0])] = true;
  }
  return std::all_of(seen.begin(), seen.end(), [](bool b) { return b; });
}

Result<std::unique_ptr<const TextModel>> CreateBpeWords(const VocabSpec& spec, bool bytes) {
  auto model = std::make_unique<BpeWords>(spec, bytes);
  RETURN_IF_ERROR(model->AddMerges(spec.pipeline));
  return std::unique_ptr<const TextModel>(std::move(model));
}

}  // namespace tokamak
