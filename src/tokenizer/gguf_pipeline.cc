#include "tokenizer/gguf_pipeline.h"

#include <algorithm>
#include <memory>
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

// Decodes ▁ as a space. `drop_first`: a text loses one space at its start, which encoding added.
void UnescapeSpaces(PipelineSpec& pipeline, bool drop_first) {
  DecoderStep spaces, fuse, first;
  spaces.kind = DecoderStep::Kind::kReplace;
  spaces.pattern.text = kEscapedSpace;
  spaces.content = " ";
  fuse.kind = DecoderStep::Kind::kFuse;
  first.kind = DecoderStep::Kind::kStrip;
  first.content = " ";
  first.start = 1;
  pipeline.decoders = {spaces};
  if (drop_first) pipeline.decoders.insert(pipeline.decoders.end(), {fuse, first});
}

// Control and user-defined tokens are found in the text before anything else.
void AddFoundTokens(const VocabSpec& spec, PipelineSpec& pipeline) {
  const auto takes_space = [](const std::vector<int32_t>& ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const TokenType type = spec.types[i];
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if (!special && type != TokenType::kUserDefined) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(i);
    token.special = special;
    token.lstrip = takes_space(spec.lstrip_tokens, token.id);
    token.rstrip = takes_space(spec.rstrip_tokens, token.id);
    pipeline.added.push_back(token);
  }
}

Status AddTemplate(const VocabSpec& spec, PipelineSpec& pipeline) {
  const SpecialTokenIds& special = spec.special;
  const bool words = spec.kind == TokenizerKind::kWordPiece;
  if (spec.add_bos) {
    pipeline.before = {words && special.cls >= 0 ? special.cls : special.bos};
    if (pipeline.before[0] < 0) return InvalidArgument("add_bos is set, but there is no bos token");
  }
  if (spec.add_eos) {
    pipeline.after = {words ? special.sep : special.eos};
    if (pipeline.after[0] < 0) return InvalidArgument("add_eos is set, but there is no eos token");
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

Status MakeBytePairs(const VocabSpec& spec, PipelineSpec& pipeline) {
  const PreTokenizerRule* rule = FindPreTokenizer(spec.pre_tokenizer);
  if (rule == nullptr) {
    return Unimplemented("unknown pre-tokenizer \"{}\"", ToValidUtf8(spec.pre_tokenizer));
  }
  if (rule->nfc) AddNormalizer(pipeline, NormalizerStep::Kind::kNfc);
  if (rule->escape_spaces) {
    EscapeSpaces(pipeline);
    UnescapeSpaces(pipeline, /*drop_first=*/false);
  }
  if (rule->drop_between && spec.lowercase) {
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
  return AddMerges(spec.merges, pipeline);
}

void MakeSentencePieceBpe(const VocabSpec& spec, PipelineSpec& pipeline) {
  if (spec.add_space_prefix) {
    NormalizerStep& step = pipeline.normalizers.emplace_back();
    step.kind = NormalizerStep::Kind::kPrepend;
    step.content = kEscapedSpace;
  }
  EscapeSpaces(pipeline);
  UnescapeSpaces(pipeline, /*drop_first=*/spec.add_space_prefix);
}

void MakeUnigram(const VocabSpec& spec, PipelineSpec& pipeline) {
  NormalizerStep& step = pipeline.normalizers.emplace_back();
  step.kind = NormalizerStep::Kind::kSentencePiece;
  step.content = spec.precompiled_charsmap;
  step.prepend = spec.add_space_prefix ? PrependScheme::kAlways : PrependScheme::kNever;
  step.merge_spaces = spec.remove_extra_whitespaces;
  UnescapeSpaces(pipeline, /*drop_first=*/spec.add_space_prefix);
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.types[id] == TokenType::kUserDefined) pipeline.in_model[id] = false;
  }
}

// Tokens that begin a word are spelled with ▁, others without.
void MakeWordPieces(const VocabSpec& spec, PipelineSpec& pipeline) {
  NormalizerStep& step = pipeline.normalizers.emplace_back();
  step.kind = NormalizerStep::Kind::kBert;
  step.clean_text = step.chinese = true;
  step.strip_accents = spec.strip_accents;
  step.lowercase = spec.lowercase;
  pipeline.pre_tokenizers.emplace_back().kind = PreTokenizerStep::Kind::kBert;
  pipeline.word_prefix = kEscapedSpace;
  UnescapeSpaces(pipeline, /*drop_first=*/true);
}

Status MakeModel(const VocabSpec& spec, PipelineSpec& pipeline) {
  switch (spec.kind) {
    case TokenizerKind::kBpe:
      return MakeBytePairs(spec, pipeline);
    case TokenizerKind::kSentencePieceBpe:
      MakeSentencePieceBpe(spec, pipeline);
      break;
    case TokenizerKind::kUnigram:
      MakeUnigram(spec, pipeline);
      break;
    case TokenizerKind::kWordPiece:
      MakeWordPieces(spec, pipeline);
      break;
  }
  return Status();
}

}  // namespace

Status MakeGgufPipeline(VocabSpec& spec) {
  spec.end_tokens = ResolveSpecialTokens(spec);
  auto pipeline = std::make_shared<PipelineSpec>();
  AddFoundTokens(spec, *pipeline);
  RETURN_IF_ERROR(AddTemplate(spec, *pipeline));
  pipeline->unk = spec.special.unk;
  pipeline->scores.assign(spec.scores.begin(), spec.scores.end());
  pipeline->in_model.resize(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const TokenType type = spec.types[id];
    pipeline->in_model[id] =
        type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kUnused;
    if (type == TokenType::kByte) pipeline->byte_fallback = true;
  }
  RETURN_IF_ERROR(MakeModel(spec, *pipeline));
  spec.pipeline = std::move(pipeline);
  return Status();
}

}  // namespace tokamak
