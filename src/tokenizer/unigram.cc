#include "tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "tokenizer/byte_fallback.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/sentencepiece_text.h"
#include "tokenizer/unigram_search.h"

namespace tokamak {
namespace {

// Bounds the time to O(text × kMaxTokenBytes).
constexpr size_t kMaxTokenBytes = 1024;
class Unigram final : public TextModel {
 public:
  Unigram(const VocabSpec& spec, SentencePieceText normalizer);
  void Encode(std::string_view text, EncodeScratch& scratch,
              std::vector<int32_t>& ids) const override;
  bool can_encode_anything() const { return bytes_.complete(); }

 private:
  const SentencePieceText normalizer_;
  const ByteFallback bytes_;
  UnigramSearch search_;
};

Unigram::Unigram(const VocabSpec& spec, SentencePieceText normalizer)
    : normalizer_(std::move(normalizer)), bytes_(spec, spec.special.unk) {
  std::vector<UnigramSearch::Token> tokens;
  double lowest = std::numeric_limits<float>::max();
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const TokenType type = spec.types[id];
    if (type == TokenType::kNormal) lowest = std::min<double>(lowest, spec.scores[id]);
    const bool found_in_text = type == TokenType::kNormal || type == TokenType::kUnused;
    if (found_in_text && !spec.tokens[id].empty()) {
      tokens.push_back({spec.tokens[id], static_cast<int32_t>(id), spec.scores[id]});
    }
  }
  search_ = UnigramSearch(tokens, lowest - UnigramSearch::kUnknownPenalty);
}

void Unigram::Encode(std::string_view text, EncodeScratch& /*scratch*/,
                     std::vector<int32_t>& ids) const {
  const std::string normalized = normalizer_.Normalize(text, /*starts=*/true);
  bool unknown = false;
  search_.Segment(normalized, [&](std::string_view part, int32_t id) {
    if (id >= 0) {
      ids.push_back(id);
      unknown = false;
    } else {
      unknown = bytes_.Append(part, unknown, ids);
    }
  });
}

}  // namespace

Result<std::unique_ptr<const TextModel>> CreateUnigram(const VocabSpec& spec) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!std::isfinite(spec.scores[id]))
      return InvalidArgument("token {}'s score is not finite", id);
    if (spec.tokens[id].size() > kMaxTokenBytes) {
      return InvalidArgument("token {} has {} bytes; at most {} are supported", id,
                             spec.tokens[id].size(), kMaxTokenBytes);
    }
  }
  NormalizerStep step;
  step.kind = NormalizerStep::Kind::kSentencePiece;
  step.content = spec.precompiled_charsmap;
  step.prepend = spec.add_space_prefix ? PrependScheme::kAlways : PrependScheme::kNever;
  step.merge_spaces = spec.remove_extra_whitespaces;
  ASSIGN_OR_RETURN(SentencePieceText normalizer, SentencePieceText::Create(step));
  auto model = std::make_unique<Unigram>(spec, std::move(normalizer));
  if (!model->can_encode_anything()) {
    return InvalidArgument("the vocabulary has neither an unknown token nor tokens for all bytes");
  }
  return std::unique_ptr<const TextModel>(std::move(model));
}

}  // namespace tokamak
