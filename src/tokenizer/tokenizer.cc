#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_token.h"
#include "tokenizer/bytes_per_token.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/escaped_space.h"
#include "tokenizer/gguf_pipeline.h"
#include "tokenizer/piece_decoder.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/sentencepiece_bpe.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/string_index.h"
#include "tokenizer/text_model.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

namespace tokamak {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;

// Returns whether the token's text is its spelling, as it is for tokens with a role.
bool IsVerbatim(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown ||
         type == TokenType::kUserDefined;
}

// The bytes of a token in text.
std::string PieceOf(const VocabSpec& spec, size_t id) {
  const std::string& text = spec.tokens[id];
  switch (spec.types[id]) {
    case TokenType::kControl:
    case TokenType::kUnknown:
    case TokenType::kUserDefined:
      return text;
    case TokenType::kByte:
      if (const int byte = ParseByteToken(text); byte >= 0) {
        return std::string(1, static_cast<char>(byte));
      }
      break;
    default:
      break;
  }
  return UnescapeSpaces(text);
}

Status CheckId(const char* what, int32_t id, size_t vocab_size) {
  if (id < -1 || (id >= 0 && static_cast<size_t>(id) >= vocab_size)) {
    return InvalidArgument("the {} token's id is {}, outside the vocabulary of {}", what, id,
                           vocab_size);
  }
  return Status();
}

Status CheckSpecialIds(const VocabSpec& spec) {
  const SpecialTokenIds& s = spec.special;
  const std::pair<const char*, int32_t> ids[] = {{"bos", s.bos}, {"eos", s.eos}, {"eot", s.eot},
                                                 {"eom", s.eom}, {"unk", s.unk}, {"sep", s.sep},
                                                 {"pad", s.pad}, {"cls", s.cls}, {"mask", s.mask}};
  for (const auto& [what, id] : ids) RETURN_IF_ERROR(CheckId(what, id, spec.tokens.size()));
  for (const auto* list : {&spec.lstrip_tokens, &spec.rstrip_tokens, &spec.end_tokens}) {
    for (const int32_t id : *list) RETURN_IF_ERROR(CheckId("listed", id, spec.tokens.size()));
  }
  return Status();
}

// Checks sizes, ids and spellings, and fills in default types and scores.
Status CheckAndComplete(VocabSpec& spec) {
  const size_t count = spec.tokens.size();
  if (count == 0) return InvalidArgument("the vocabulary is empty");
  if (count > kMaxTokens) {
    return InvalidArgument("the vocabulary has {} tokens; at most {} are supported", count,
                           kMaxTokens);
  }
  if (spec.types.empty()) spec.types.assign(count, TokenType::kNormal);
  if (spec.types.size() != count) {
    return InvalidArgument("there are {} token types for {} tokens", spec.types.size(), count);
  }
  if (spec.scores.empty()) spec.scores.assign(count, 0.0f);
  if (spec.scores.size() != count) {
    return InvalidArgument("there are {} token scores for {} tokens", spec.scores.size(), count);
  }
  for (size_t id = 0; id < count; ++id) {
    const std::string& text = spec.tokens[id];
    if (ValidUtf8Prefix(text) != text.size()) {
      return InvalidArgument("token {} is not valid UTF-8: \"{}\"", id, ToValidUtf8(text));
    }
  }
  return CheckSpecialIds(spec);
}

// A tokenizer.json defines its tokens itself. Names are used only among its special tokens, and
// only to find the end tokens.
std::vector<int32_t> EndTokensOf(VocabSpec& spec) {
  const std::vector<TokenType> types = spec.types;
  const SpecialTokenIds stated = spec.special;
  std::vector<int32_t> ends = ResolveSpecialTokens(spec);
  spec.types = types;
  const auto is_special = [&](int32_t id) {
    return id >= 0 && types[static_cast<size_t>(id)] == TokenType::kControl;
  };
  if (stated.eot < 0 && !is_special(spec.special.eot)) spec.special.eot = -1;
  if (stated.eom < 0 && !is_special(spec.special.eom)) spec.special.eom = -1;
  std::erase_if(ends, [&](int32_t id) {
    const bool listed =
        std::find(spec.end_tokens.begin(), spec.end_tokens.end(), id) != spec.end_tokens.end();
    return !listed && id != spec.special.eos && !is_special(id);
  });
  return ends;
}

Result<std::unique_ptr<const TextModel>> CreateModel(const VocabSpec& spec) {
  switch (spec.kind) {
    case TokenizerKind::kBpe:
      break;
    case TokenizerKind::kSentencePieceBpe:
      return CreateSentencePieceBpe(spec);
    case TokenizerKind::kUnigram:
      return CreateUnigram(spec);
    case TokenizerKind::kWordPiece:
      return CreateWordPiece(spec);
  }
  return Internal("the kind of tokenizer is unknown");
}

}  // namespace

struct Tokenizer::Impl {
  VocabSpec spec;
  std::vector<std::string> token_bytes;  // by id
  std::vector<int32_t> end_of_generation;
  std::vector<bool> ends_generation;  // by id
  StringIndex spelling;               // of spec.tokens
  SpecialTokenMatcher matcher;
  std::unique_ptr<const TextModel> model;
  std::unique_ptr<const Pipeline> pipeline;  // replaces matcher and model
  std::optional<PieceDecoder> decoder;       // set with pipeline
  std::vector<int32_t> before, after;        // added around the text
  BytesPerToken bytes_per_token;

  bool Valid(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < token_bytes.size(); }
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Create(VocabSpec vocab) {
  auto impl = std::make_unique<Impl>();
  impl->spec = std::move(vocab);
  VocabSpec& spec = impl->spec;
  RETURN_IF_ERROR(CheckAndComplete(spec));
  if (!spec.pipeline && spec.kind == TokenizerKind::kBpe) RETURN_IF_ERROR(MakeGgufPipeline(spec));
  impl->end_of_generation = spec.pipeline ? EndTokensOf(spec) : ResolveSpecialTokens(spec);
  const size_t count = spec.tokens.size();
  impl->ends_generation.resize(count);
  for (const int32_t id : impl->end_of_generation) impl->ends_generation[id] = true;

  impl->spelling = StringIndex(count);
  for (size_t id = 0; id < count; ++id) {
    if (!spec.tokens[id].empty()) impl->spelling.Insert(spec.tokens[id], static_cast<int32_t>(id));
  }
  impl->bytes_per_token = BoundBytesPerToken(spec);
  RETURN_IF_ERROR(spec.pipeline ? MakePipeline(*impl) : MakeModel(*impl));
  spec.merges = {};
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

Status Tokenizer::MakeModel(Impl& impl) {
  const VocabSpec& spec = impl.spec;
  const bool word_piece = spec.kind == TokenizerKind::kWordPiece;
  if (spec.add_bos) {
    impl.before = {word_piece && spec.special.cls >= 0 ? spec.special.cls : spec.special.bos};
    if (impl.before[0] < 0) return InvalidArgument("add_bos is set, but there is no bos token");
  }
  if (spec.add_eos) {
    impl.after = {word_piece ? spec.special.sep : spec.special.eos};
    if (impl.after[0] < 0) return InvalidArgument("add_eos is set, but there is no eos token");
  }
  ASSIGN_OR_RETURN(impl.matcher, SpecialTokenMatcher::Create(spec));
  impl.token_bytes.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    impl.token_bytes.push_back(PieceOf(spec, id));
  }
  ASSIGN_OR_RETURN(impl.model, CreateModel(spec));
  return Status();
}

Status Tokenizer::MakePipeline(Impl& impl) {
  const VocabSpec& spec = impl.spec;
  impl.before = spec.pipeline->before;
  impl.after = spec.pipeline->after;
  for (const auto* ids : {&impl.before, &impl.after}) {
    for (const int32_t id : *ids) RETURN_IF_ERROR(CheckId("template's", id, spec.tokens.size()));
  }
  ASSIGN_OR_RETURN(impl.decoder, PieceDecoder::Create(spec.pipeline->decoders));
  impl.token_bytes.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string& token = spec.tokens[id];
    // A user-defined token of a SentencePiece model is spelled like its other tokens.
    const bool of_model = spec.pipeline->sentencepiece && spec.pipeline->in_model[id];
    const bool verbatim = IsVerbatim(spec.types[id]) && !of_model;
    const int byte = spec.types[id] == TokenType::kByte ? ParseByteToken(token) : -1;
    impl.token_bytes.push_back(byte >= 0  ? std::string(1, static_cast<char>(byte))
                               : verbatim ? token
                                          : impl.decoder->Decode(token, /*first=*/false));
  }
  ASSIGN_OR_RETURN(impl.pipeline, Pipeline::Create(spec));
  impl.spec.pipeline.reset();  // large, and no longer needed
  return Status();
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxTextBytes) {
    return ResourceExhausted("the text has {} bytes; at most {} can be tokenized at once",
                             text.size(), kMaxTextBytes);
  }
  std::string repaired;
  if (ValidUtf8Prefix(text) != text.size()) {
    repaired = ToValidUtf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 2);
  if (options.add_special) ids = impl_->before;
  const auto finish = [&] {
    if (options.add_special) ids.insert(ids.end(), impl_->after.begin(), impl_->after.end());
    return std::move(ids);
  };
  if (impl_->pipeline) {
    RETURN_IF_ERROR(impl_->pipeline->Encode(text, options.parse_special, ids));
    return finish();
  }
  EncodeScratch scratch;
  const auto on_text = [&](std::string_view part) {
    impl_->model->Encode(part, scratch, ids);
    return Status();
  };
  const auto on_token = [&](int32_t id) { ids.push_back(id); };
  RETURN_IF_ERROR(impl_->matcher.Partition(text, options.parse_special, on_text, on_token));
  return finish();
}

Result<std::string> Tokenizer::Decode(std::span<const int32_t> ids, DecodeOptions options) const {
  // The detokenizer shares ownership of its tokenizer. This one outlives the call anyway.
  Detokenizer stream(std::shared_ptr<const Tokenizer>(std::shared_ptr<void>(), this),
                     std::move(options));
  std::string text;
  for (const int32_t id : ids) {
    if (!impl_->Valid(id)) {
      return InvalidArgument("token id {} is outside the vocabulary of {}", id, vocab_size());
    }
    text += stream.Append(id);
  }
  text += stream.Flush();
  return text;
}

Result<std::vector<TokenDescription>> Tokenizer::Describe(std::span<const int32_t> ids) const {
  std::vector<TokenDescription> out;
  out.reserve(ids.size());
  for (const int32_t id : ids) {
    if (!impl_->Valid(id)) {
      return InvalidArgument("token id {} is outside the vocabulary of {}", id, vocab_size());
    }
    const std::string& piece = impl_->token_bytes[id];
    out.push_back({id, ToValidUtf8(piece), piece, IsSpecial(id)});
  }
  return out;
}

size_t Tokenizer::LeastTokens(std::string_view text) const {
  return impl_->bytes_per_token.LeastTokens(text);
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(impl_->token_bytes.size()); }

std::string_view Tokenizer::TokenPiece(int32_t id) const {
  return impl_->Valid(id) ? std::string_view(impl_->token_bytes[id]) : std::string_view();
}

int32_t Tokenizer::FindToken(std::string_view spelling) const {
  return impl_->spelling.Find(spelling);
}

const SpecialTokenIds& Tokenizer::special() const { return impl_->spec.special; }

bool Tokenizer::IsSpecial(int32_t id) const {
  if (!impl_->Valid(id)) return false;
  const TokenType type = impl_->spec.types[id];
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

bool Tokenizer::IsEndOfGeneration(int32_t id) const {
  return impl_->Valid(id) && impl_->ends_generation[id];
}

const std::vector<int32_t>& Tokenizer::end_of_generation_ids() const {
  return impl_->end_of_generation;
}

const std::vector<int32_t>& Tokenizer::added_before() const { return impl_->before; }
const std::vector<int32_t>& Tokenizer::added_after() const { return impl_->after; }
bool Tokenizer::adds_bos() const { return !impl_->before.empty(); }

size_t Tokenizer::leading_spaces() const {
  if (impl_->decoder) return impl_->decoder->leading_spaces();
  const bool drops = impl_->spec.kind == TokenizerKind::kWordPiece ||
                     (impl_->spec.kind != TokenizerKind::kBpe && impl_->spec.add_space_prefix);
  return drops ? 1 : 0;
}

std::string Tokenizer::FirstPiece(int32_t id) const {
  if (impl_->decoder && impl_->Valid(id) && !IsVerbatim(impl_->spec.types[id]) &&
      impl_->spec.types[id] != TokenType::kByte) {
    return impl_->decoder->Decode(impl_->spec.tokens[id], /*first=*/true);
  }
  return std::string(TokenPiece(id));
}

}  // namespace tokamak
