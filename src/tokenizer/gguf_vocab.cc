#include "tokenizer/gguf_vocab.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/escaped_space.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/pretokenizer_table.h"
#include "tokenizer/special_tokens.h"

namespace tokamak {
namespace {

void AddNormalizer(PipelineSpec& pipeline, NormalizerStep::Kind kind) {
  pipeline.normalizers.emplace_back().kind = kind;
}

// Spells spaces as ▁.
void EscapeSpaces(PipelineSpec& pipeline) {
  NormalizerStep& step = pipeline.normalizers.emplace_back();
  step.kind = NormalizerStep::Kind::kReplace;
  step.pattern.text = " ";
  step.content = kEscapedSpace;
}

// Control and user-defined tokens are found in the text before anything else.
void AddFoundTokens(GgufVocab& vocab, VocabSpec& spec) {
  std::sort(vocab.lstrip_tokens.begin(), vocab.lstrip_tokens.end());
  std::sort(vocab.rstrip_tokens.begin(), vocab.rstrip_tokens.end());
  const auto contains = [](const std::vector<int32_t>& ids, int32_t id) {
    return std::binary_search(ids.begin(), ids.end(), id);
  };
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const TokenType type = spec.types[i];
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if (!special && type != TokenType::kUserDefined) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(i);
    token.special = special;
    token.lstrip = contains(vocab.lstrip_tokens, token.id);
    token.rstrip = contains(vocab.rstrip_tokens, token.id);
    spec.pipeline.added.push_back(token);
  }
}

Status AddTemplate(const GgufVocab& vocab, VocabSpec& spec) {
  const SpecialTokenIds& special = spec.special;
  const bool words = spec.kind == TokenizerKind::kWordPiece;
  if (vocab.add_bos) {
    const int32_t id = words && special.cls >= 0 ? special.cls : special.bos;
    if (id < 0) return InvalidArgument("add_bos is set, but there is no bos token");
    spec.pipeline.before = {id};
  }
  if (vocab.add_eos) {
    const int32_t id = words ? special.sep : special.eos;
    if (id < 0) return InvalidArgument("add_eos is set, but there is no eos token");
    spec.pipeline.after = {id};
  }
  return Status();
}

// "left right", best first. Spaces inside the parts belong to the right one.
Status AddMerges(const std::vector<std::string>& merges, PipelineSpec& pipeline) {
  if (merges.empty()) {
    return InvalidArgument("the vocabulary has no merges; byte-pair encoding needs them");
  }
  pipeline.merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string_view text = merges[i];
    const size_t space = text.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == text.size() || !IsValidUtf8(text)) {
      return InvalidArgument("merge {} is \"{}\", expected two parts with a space between", i,
                             ToValidUtf8(text));
    }
    pipeline.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return Status();
}

// Whether GPT-2's alphabet spells the text as itself.
bool SpellsItself(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

Status MakeBytePairs(const GgufVocab& vocab, VocabSpec& spec) {
  const PreTokenizerRule* rule = FindPreTokenizer(vocab.pre_tokenizer);
  if (rule == nullptr) {
    return Unimplemented("unknown pre-tokenizer \"{}\"", ToValidUtf8(vocab.pre_tokenizer));
  }
  PipelineSpec& pipeline = spec.pipeline;
  if (rule->nfc) AddNormalizer(pipeline, NormalizerStep::Kind::kNfc);
  if (rule->escape_spaces) {
    EscapeSpaces(pipeline);
    pipeline.decoders = UnescapeSpaces(/*drop_first=*/false);
  }
  if (rule->drop_between && vocab.lowercase) {
    AddNormalizer(pipeline, NormalizerStep::Kind::kLowercase);
  }
  pipeline.pre_tokenizers = rule->PreTokenizers();
  if (rule->byte_level) pipeline.decoders.emplace_back().kind = DecoderStep::Kind::kByteLevel;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    // Added tokens that are spelled as plain text, such as "  ", are found in the text before words
    // are merged, and merges only produce spellings in the alphabet.
    if (spec.types[id] == TokenType::kUserDefined && rule->byte_level) {
      pipeline.in_model[id] = SpellsItself(spec.tokens[id]);
    }
  }
  // There is no unknown token: checkpoints name their end token as unknown, and ordinary text must
  // not produce that.
  pipeline.unk = -1;
  pipeline.merge_strings = true;
  pipeline.ignore_merges = rule->ignore_merges;
  pipeline.whole_newlines = rule->whole_newlines;
  return AddMerges(vocab.merges, pipeline);
}

void MakeSentencePieceBpe(const GgufVocab& vocab, PipelineSpec& pipeline) {
  if (vocab.add_space_prefix) {
    AddNormalizer(pipeline, NormalizerStep::Kind::kPrepend);
    pipeline.normalizers.back().content = kEscapedSpace;
  }
  EscapeSpaces(pipeline);
  pipeline.decoders = UnescapeSpaces(/*drop_first=*/vocab.add_space_prefix);
}

void MakeUnigram(const GgufVocab& vocab, VocabSpec& spec) {
  PipelineSpec& pipeline = spec.pipeline;
  NormalizerStep& step = pipeline.normalizers.emplace_back();
  step.kind = NormalizerStep::Kind::kSentencePiece;
  step.content = vocab.precompiled_charsmap;
  step.prepend = vocab.add_space_prefix ? PrependScheme::kAlways : PrependScheme::kNever;
  step.merge_spaces = vocab.remove_extra_whitespaces;
  pipeline.decoders = UnescapeSpaces(/*drop_first=*/vocab.add_space_prefix);
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.types[id] == TokenType::kUserDefined) pipeline.in_model[id] = false;
  }
}

// Tokens that begin a word are spelled with ▁, others without.
void MakeWordPieces(const GgufVocab& vocab, PipelineSpec& pipeline) {
  NormalizerStep& step = pipeline.normalizers.emplace_back();
  step.kind = NormalizerStep::Kind::kBert;
  step.clean_text = step.chinese = true;
  step.strip_accents = vocab.strip_accents;
  step.lowercase = vocab.lowercase;
  pipeline.pre_tokenizers.emplace_back().kind = PreTokenizerStep::Kind::kBert;
  pipeline.word_prefix = kEscapedSpace;
  pipeline.decoders = UnescapeSpaces(/*drop_first=*/true);
}

}  // namespace

Result<VocabSpec> MakeGgufVocab(GgufVocab vocab) {
  const size_t count = vocab.tokens.size();
  if (count == 0) return InvalidArgument("the vocabulary is empty");
  if (vocab.types.empty()) vocab.types.assign(count, TokenType::kNormal);
  if (vocab.scores.empty()) vocab.scores.assign(count, 0.0f);
  if (vocab.types.size() != count || vocab.scores.size() != count) {
    return InvalidArgument("there are {} token types and {} token scores for {} tokens",
                           vocab.types.size(), vocab.scores.size(), count);
  }
  VocabSpec spec;
  spec.kind = vocab.kind;
  spec.tokens = std::move(vocab.tokens);
  spec.types = std::move(vocab.types);
  spec.special = vocab.special;
  spec.end_tokens = std::move(vocab.end_tokens);
  spec.end_tokens = ResolveSpecialTokens(spec);
  AddFoundTokens(vocab, spec);
  RETURN_IF_ERROR(AddTemplate(vocab, spec));
  PipelineSpec& pipeline = spec.pipeline;
  pipeline.unk = spec.special.unk;
  pipeline.scores.assign(vocab.scores.begin(), vocab.scores.end());
  pipeline.in_model.resize(count);
  for (size_t id = 0; id < count; ++id) {
    const TokenType type = spec.types[id];
    pipeline.in_model[id] =
        type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kUnused;
    if (type == TokenType::kByte) pipeline.byte_fallback = true;
  }
  switch (spec.kind) {
    case TokenizerKind::kBpe:
      RETURN_IF_ERROR(MakeBytePairs(vocab, spec));
      break;
    case TokenizerKind::kSentencePieceBpe:
      MakeSentencePieceBpe(vocab, pipeline);
      break;
    case TokenizerKind::kUnigram:
      MakeUnigram(vocab, spec);
      break;
    case TokenizerKind::kWordPiece:
      MakeWordPieces(vocab, pipeline);
      break;
  }
  return spec;
}

}  // namespace tokamak
