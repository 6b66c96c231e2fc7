// Byte-pair encoding of pieces as in the `tokenizers` library.
#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <tuple>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/bpe_merges.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/byte_token.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/string_index.h"
#include "tokenizer/word_models.h"

namespace tokamak {
namespace {

class BpeWords final : public TextModel {
 public:
  BpeWords(const VocabSpec& spec, bool bytes);
  Status AddMerges(const PipelineSpec& spec);
  Status Encode(std::string_view text, bool starts, std::vector<int32_t>& ids) const override;

 private:
  void Split(std::string_view text, BpeWord& word) const;
  // Appends the byte tokens of a character. If one is missing, returns false and appends none.
  bool AppendBytes(std::string_view character, size_t begin, BpeWord& word) const;

  const bool bytes_;
  const bool byte_fallback_, ignore_merges_, fuse_unk_, merge_by_id_;
  const int32_t unk_;
  const std::string prefix_, suffix_;  // of tokens inside a word, and at its end
  const bool affixes_;                 // either is set
  std::vector<std::string> decoded_;   // if bytes_: the bytes of each token
  StringIndex index_;
  std::array<int32_t, 256> byte_tokens_;  // "<0x0A>", or -1
  std::array<int32_t, 256> single_;       // tokens of one byte, or -1
  BpeMerges merges_;
  // Remembers tokens whose own text was seen to merge to that token. Relaxed atomics, because all
  // threads write the same value.
  mutable std::vector<std::atomic<bool>> whole_;
};

BpeWords::BpeWords(const VocabSpec& spec, bool bytes)
    : bytes_(bytes),
      byte_fallback_(spec.pipeline->byte_fallback),
      ignore_merges_(spec.pipeline->ignore_merges),
      fuse_unk_(spec.pipeline->fuse_unk),
      merge_by_id_(spec.pipeline->merge_by_id),
      unk_(spec.pipeline->unk),
      prefix_(spec.pipeline->continuing_prefix),
      suffix_(spec.pipeline->word_suffix),
      affixes_(!prefix_.empty() || !suffix_.empty()),
      decoded_(bytes ? spec.tokens.size() : 0),
      index_(spec.tokens.size()),
      merges_(spec.pipeline->merges.size()),
      whole_(spec.tokens.size()) {
  byte_tokens_.fill(-1);
  single_.fill(-1);
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.pipeline->in_model[id]) continue;
    const std::string& token = spec.tokens[id];
    if (const int byte = ParseByteToken(token); byte >= 0) {
      byte_tokens_[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
    }
    // Spelled outside the alphabet, so text cannot contain it.
    if (bytes_ && !DecodeByteAlphabet(token, decoded_[id])) decoded_[id].clear();
    const std::string& text = bytes_ ? decoded_[id] : token;
    if (text.empty()) continue;
    index_.Insert(text, static_cast<int32_t>(id));
    if (text.size() == 1) single_[static_cast<uint8_t>(text[0])] = static_cast<int32_t>(id);
  }
}

Status BpeWords::AddMerges(const PipelineSpec& spec) {
  std::string left, right, bytes;
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    std::tie(left, right) = spec.merges[i];
    if (bytes_) {
      if (!DecodeByteAlphabet(left, bytes)) continue;
      left.swap(bytes);
      if (!DecodeByteAlphabet(right, bytes)) continue;
      right.swap(bytes);
    }
    const int32_t l = index_.Find(left), r = index_.Find(right);
    std::string merged = left;
    merged += std::string_view(right).substr(std::min(prefix_.size(), right.size()));
    const int32_t result = index_.Find(merged);
    if (l < 0 || r < 0 || result < 0) {
      return InvalidArgument("merge {} (\"{}\" and \"{}\"): {} is not in the vocabulary", i,
                             ToValidUtf8(spec.merges[i].first), ToValidUtf8(spec.merges[i].second),
                             l < 0   ? "the first"
                             : r < 0 ? "the second"
                                     : "the result");
    }
    merges_.Insert(l, r, static_cast<uint32_t>(i), result);
  }
  return Status();
}

bool BpeWords::AppendBytes(std::string_view character, size_t begin, BpeWord& word) const {
  for (const char byte : character) {
    if (byte_tokens_[static_cast<uint8_t>(byte)] < 0) return false;
  }
  for (size_t i = 0; i < character.size(); ++i) {
    word.Append(byte_tokens_[static_cast<uint8_t>(character[i])], begin + i, 1);
  }
  return true;
}

void BpeWords::Split(std::string_view text, BpeWord& word) const {
  word.Clear();
  size_t unknown = 0;  // bytes of characters waiting to become an unknown token
  std::string spelled;
  const auto flush = [&](size_t at) {
    if (unknown > 0) word.Append(unk_, at - unknown, unknown);
    unknown = 0;
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t size = bytes_ ? 1 : Utf8Length(text[begin]);
    const std::string_view character = text.substr(begin, size);
    int32_t id = -1;
    if (affixes_) {
      spelled = begin > 0 ? prefix_ : "";
      spelled += character;
      if (begin + size == text.size()) spelled += suffix_;
      id = index_.Find(spelled);
    } else {
      id = size == 1 ? single_[static_cast<uint8_t>(text[begin])] : index_.Find(character);
    }
    if (id >= 0) {
      flush(begin);
      word.Append(id, begin, size);
    } else if (byte_fallback_ && AppendBytes(character, begin, word)) {
      // A waiting unknown token comes after these, as in the reference.
    } else if (unk_ >= 0) {
      if (!fuse_unk_) flush(begin);
      unknown += size;
    }  // else it is dropped
    begin += size;
  }
  flush(text.size());
  word.Close();
}

Status BpeWords::Encode(std::string_view text, bool /*starts*/, std::vector<int32_t>& ids) const {
  const int32_t found = text.size() <= index_.longest() ? index_.Find(text) : -1;
  if (found >= 0 && (ignore_merges_ || whole_[found].load(std::memory_order_relaxed))) {
    ids.push_back(found);
    return Status();
  }
  BpeWord word;
  Split(text, word);
  if (word.nodes.empty()) return Status();
  if (merge_by_id_) {
    ApplyMerges(word, [&](const BpeWord::Node& left, const BpeWord::Node& right) -> BpeMerge {
      const size_t size = size_t{left.size} + right.size;
      if (size > index_.longest()) return {};
      const int32_t id = index_.Find(text.substr(left.begin, size));
      return {static_cast<uint32_t>(id), id};
    });
  } else {
    merges_.Apply(word);
  }
  if (found >= 0 && word.nodes[0].symbol == found && word.nodes[0].next < 0) {
    whole_[found].store(true, std::memory_order_relaxed);
  }
  for (int32_t i = 0; i >= 0; i = word.nodes[i].next) ids.push_back(word.nodes[i].symbol);
  return Status();
}

}  // namespace

bool HasByteAlphabet(const VocabSpec& spec) {
  std::array<bool, 256> seen{};
  std::string bytes;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.pipeline->in_model[id] || !DecodeByteAlphabet(spec.tokens[id], bytes)) continue;
    if (bytes.size() == 1) seen[static_cast<uint8_t>(bytes[0])] = true;
  }
  return std::all_of(seen.begin(), seen.end(), [](bool b) { return b; });
}

Result<std::unique_ptr<const TextModel>> CreateBpeWords(const VocabSpec& spec, bool bytes) {
  auto model = std::make_unique<BpeWords>(spec, bytes);
  RETURN_IF_ERROR(model->AddMerges(*spec.pipeline));
  return std::unique_ptr<const TextModel>(std::move(model));
}

}  // namespace tokamak
