#include "tokenizer/bytes_per_token.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/byte_tokens.h"
#include "tokenizer/pipeline_spec.h"

namespace tokamak {
namespace {

// How much a normalizer step may change the number of bytes: text becomes at most `shrinks` times
// shorter, an added token at most `grows` times longer. 0: no bound.
struct Change {
  size_t shrinks = 1;
  size_t grows = 1;
};

// U+0390 has two bytes and a canonical equivalent of seven. A test tries all characters.
constexpr size_t kNfcShrinks = 4;

Change ChangeOf(const NormalizerStep& step) {
  constexpr Change kUnbounded = {0, 0};
  switch (step.kind) {
    case NormalizerStep::Kind::kNfc:
      return {kNfcShrinks, 4};
    case NormalizerStep::Kind::kByteLevel:
      return {1, 2};
    case NormalizerStep::Kind::kPrepend:
      return step.content.size() <= 3 ? Change{1, 4} : kUnbounded;
    case NormalizerStep::Kind::kReplace: {
      const size_t from = step.pattern.text.size(), to = step.content.size();
      return !step.pattern.is_regex() && from > 0 && to >= from && to <= 4 * from ? Change{1, 4}
                                                                                  : kUnbounded;
    }
    case NormalizerStep::Kind::kSentencePiece:
      return step.content.empty() && !step.merge_spaces ? Change{1, 4} : kUnbounded;
    default:
      return kUnbounded;
  }
}

// Whether the model gets all of the text.
bool KeepsText(const PreTokenizerStep& step) {
  switch (step.kind) {
    case PreTokenizerStep::Kind::kByteLevel:
    case PreTokenizerStep::Kind::kMetaspace:
    case PreTokenizerStep::Kind::kNumberGroups:
    case PreTokenizerStep::Kind::kWordEndDigitGroups:
    case PreTokenizerStep::Kind::kDigitGroups:
      return true;
    case PreTokenizerStep::Kind::kSplit:
    case PreTokenizerStep::Kind::kDigits:
    case PreTokenizerStep::Kind::kPunctuation:
      return step.behavior != SplitBehavior::kRemoved;
    default:
      return false;
  }
}

using Bytes = std::array<bool, 256>;

Bytes AllBytes() {
  Bytes bytes;
  bytes.fill(true);
  return bytes;
}

// The bytes that have a token in GPT-2's alphabet. Many vocabularies lack tokens for bytes that no
// text contains, and for a few others.
Bytes BytesWithLetters(const VocabSpec& spec) {
  Bytes seen{};
  std::string bytes;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.pipeline.in_model[id] || !DecodeByteAlphabet(spec.tokens[id], bytes)) continue;
    if (bytes.size() == 1) seen[static_cast<uint8_t>(bytes[0])] = true;
  }
  return seen;
}

// A spelling is at least as long as its text: a byte takes one or two bytes in GPT-2's alphabet,
// and ▁ stands for itself or for a space.
size_t LongestSpelling(const VocabSpec& spec) {
  size_t longest = 0;
  for (const std::string& token : spec.tokens) longest = std::max(longest, token.size());
  return longest;
}

// The bytes that the pipeline's model always turns into tokens, whatever is next to them.
Bytes BytesOfModel(const VocabSpec& spec) {
  const PipelineSpec& pipeline = spec.pipeline;
  if (spec.kind == TokenizerKind::kSentencePieceBpe) {
    return ByteTokens(spec).complete() ? AllBytes() : Bytes{};
  }
  if (spec.kind != TokenizerKind::kBpe) return {};
  const bool letters = !pipeline.pre_tokenizers.empty() &&
                       pipeline.pre_tokenizers.back().kind == PreTokenizerStep::Kind::kByteLevel;
  const bool affixes = !pipeline.continuing_prefix.empty() || !pipeline.word_suffix.empty();
  if (letters && !affixes) return BytesWithLetters(spec);
  return !letters && ByteTokens(spec).complete() ? AllBytes() : Bytes{};
}

}  // namespace

BytesPerToken BoundBytesPerToken(const VocabSpec& spec) {
  const PipelineSpec& pipeline = spec.pipeline;
  BytesPerToken bound = {LongestSpelling(spec), BytesOfModel(spec)};
  const bool everything = bound.counted == AllBytes();
  bool normalized = false;
  for (const AddedToken& token : pipeline.added) {
    if (token.lstrip || token.rstrip) return {};
    normalized = normalized || token.normalized;
  }
  for (size_t i = 0; i < pipeline.pre_tokenizers.size(); ++i) {
    const PreTokenizerStep& step = pipeline.pre_tokenizers[i];
    const bool respells =
        step.kind == PreTokenizerStep::Kind::kMetaspace ||
        (step.kind == PreTokenizerStep::Kind::kByteLevel && i + 1 < pipeline.pre_tokenizers.size());
    if (!KeepsText(step) || (respells && !everything)) return {};
  }
  // A step may turn bytes that count into bytes that do not.
  if (!everything && !pipeline.normalizers.empty()) return {};
  for (const NormalizerStep& step : pipeline.normalizers) {
    const Change change = ChangeOf(step);
    bound.most *= change.shrinks * (normalized ? change.grows : 1);
  }
  return bound;
}

size_t BytesPerToken::LeastTokens(std::string_view text) const {
  if (most == 0) return 0;
  // In invalid UTF-8 only ASCII is certain to stay unchanged.
  const bool valid = ValidUtf8Prefix(text) == text.size();
  size_t bytes = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    bytes += counted[byte] && (valid || byte < 0x80);
  }
  return (bytes + most - 1) / most;
}

}  // namespace tokamak
