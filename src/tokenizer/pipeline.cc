#include "tokenizer/pipeline.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/sentencepiece_bpe.h"
#include "tokenizer/splitter.h"
#include "tokenizer/text_model.h"
#include "tokenizer/word_models.h"

namespace tokamak {

struct Pipeline::Impl {
  AddedTokenMatcher in_text, in_normalized;
  Normalizer normalizer;
  Splitter splitter;
  std::unique_ptr<const TextModel> model;
};

Pipeline::Pipeline(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Pipeline::~Pipeline() = default;

Result<std::unique_ptr<const Pipeline>> Pipeline::Create(const VocabSpec& spec) {
  const PipelineSpec& pipeline = spec.pipeline;
  auto impl = std::make_unique<Impl>();
  ASSIGN_OR_RETURN(impl->normalizer, Normalizer::Create(pipeline.normalizers));

  RegexScratch scratch;
  std::vector<AddedTokenMatcher::Entry> in_text, in_normalized;
  std::vector<std::string> spellings(pipeline.added.size());
  for (size_t i = 0; i < pipeline.added.size(); ++i) {
    AddedToken token = pipeline.added[i];
    const TokenType type = spec.types[static_cast<size_t>(token.id)];
    token.special = type == TokenType::kControl || type == TokenType::kUnknown;
    spellings[i] = spec.tokens[static_cast<size_t>(token.id)];
    if (token.normalized) RETURN_IF_ERROR(impl->normalizer.Apply(spellings[i], scratch));
    (token.normalized ? in_normalized : in_text).push_back({spellings[i], token});
  }
  ASSIGN_OR_RETURN(impl->in_text, AddedTokenMatcher::Create(in_text));
  ASSIGN_OR_RETURN(impl->in_normalized, AddedTokenMatcher::Create(in_normalized));

  // If the last step would spell bytes as characters, let the model take the plain bytes.
  const bool bytes = spec.kind == TokenizerKind::kBpe && !pipeline.pre_tokenizers.empty() &&
                     pipeline.pre_tokenizers.back().kind == PreTokenizerStep::Kind::kByteLevel &&
                     pipeline.continuing_prefix.empty() && pipeline.word_suffix.empty() &&
                     (pipeline.merge_strings || HasByteAlphabet(spec));
  ASSIGN_OR_RETURN(impl->splitter, Splitter::Create(pipeline.pre_tokenizers, bytes));
  switch (spec.kind) {
    case TokenizerKind::kBpe: {
      ASSIGN_OR_RETURN(impl->model, CreateBpeWords(spec, bytes));
      break;
    }
    case TokenizerKind::kUnigram: {
      ASSIGN_OR_RETURN(impl->model, CreateUnigramWords(spec));
      break;
    }
    case TokenizerKind::kWordPiece: {
      ASSIGN_OR_RETURN(impl->model, CreateWordPieceWords(spec));
      break;
    }
    case TokenizerKind::kSentencePieceBpe: {
      ASSIGN_OR_RETURN(impl->model, CreateSentencePieceBpe(spec));
      break;
    }
  }
  return std::unique_ptr<const Pipeline>(new Pipeline(std::move(impl)));
}

Status Pipeline::Encode(std::string_view text, bool parse_special,
                        std::vector<int32_t>& ids) const {
  RegexScratch scratch;
  const Impl& impl = *impl_;
  const auto on_token = [&](int32_t id) { ids.push_back(id); };
  EncodeScratch memory;
  const auto on_piece = [&](std::string_view piece) { impl.model->Encode(piece, memory, ids); };
  return impl.in_text.Partition(
      text, parse_special,
      [&](std::string_view part, bool starts) -> Status {
        const auto split = [&](std::string_view normalized, bool first) {
          return impl.splitter.Split(normalized, starts && first, scratch, on_piece);
        };
        if (impl.normalizer.empty()) {
          return impl.in_normalized.Partition(part, parse_special, split, on_token);
        }
        std::string normalized(part);
        RETURN_IF_ERROR(impl.normalizer.Apply(normalized, scratch, &starts));
        return impl.in_normalized.Partition(normalized, parse_special, split, on_token);
      },
      on_token);
}

}  // namespace tokamak
