#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_tokens.h"
#include "tokenizer/bytes_per_token.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/piece_decoder.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/string_index.h"

namespace tokamak {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;

// Returns whether the token's text is its spelling, as it is for tokens with a role.
bool IsVerbatim(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown ||
         type == TokenType::kUserDefined;
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
  for (const int32_t id : spec.end_tokens) RETURN_IF_ERROR(CheckId("end", id, spec.tokens.size()));
  for (const auto* list : {&spec.pipeline.before, &spec.pipeline.after}) {
    for (const int32_t id : *list) RETURN_IF_ERROR(CheckId("template's", id, spec.tokens.size()));
  }
  return Status();
}

// Checks sizes, ids and spellings.
Status Check(const VocabSpec& spec) {
  const size_t count = spec.tokens.size();
  if (count == 0) return InvalidArgument("the vocabulary is empty");
  if (count > kMaxTokens) {
    return InvalidArgument("the vocabulary has {} tokens; at most {} are supported", count,
                           kMaxTokens);
  }
  if (spec.types.size() != count || spec.pipeline.in_model.size() != count) {
    return InvalidArgument("there are {} token types for {} tokens, {} of them in the model",
                           spec.types.size(), count, spec.pipeline.in_model.size());
  }
  const bool scored =
      spec.kind == TokenizerKind::kUnigram || spec.kind == TokenizerKind::kSentencePieceBpe;
  if (scored && spec.pipeline.scores.size() != count) {
    return InvalidArgument("there are {} token scores for {} tokens", spec.pipeline.scores.size(),
                           count);
  }
  for (size_t id = 0; id < count; ++id) {
    const std::string& text = spec.tokens[id];
    if (ValidUtf8Prefix(text) != text.size()) {
      return InvalidArgument("token {} is not valid UTF-8: \"{}\"", id, ToValidUtf8(text));
    }
  }
  return CheckSpecialIds(spec);
}

// Types are final here. Names are used only among special tokens, and only to find the end tokens.
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

}  // namespace

struct Tokenizer::Impl {
  VocabSpec spec;
  std::vector<std::string> token_bytes;  // by id
  std::vector<int32_t> end_of_generation;
  std::vector<bool> ends_generation;  // by id
  StringIndex spelling;               // of spec.tokens
  std::unique_ptr<const Pipeline> pipeline;
  PieceDecoder decoder;
  std::vector<int32_t> before, after;  // added around the text
  BytesPerToken bytes_per_token;

  // The bytes of a token that is not verbatim.
  std::string Decode(size_t id, bool first) const {
    const int byte = spec.types[id] == TokenType::kByte ? ParseByteToken(spec.tokens[id]) : -1;
    return byte >= 0 ? std::string(1, static_cast<char>(byte))
                     : decoder.Decode(spec.tokens[id], first);
  }
  bool Valid(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < token_bytes.size(); }
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Create(VocabSpec vocab) {
  auto impl = std::make_unique<Impl>();
  impl->spec = std::move(vocab);
  VocabSpec& spec = impl->spec;
  RETURN_IF_ERROR(Check(spec));
  impl->end_of_generation = EndTokensOf(spec);
  const size_t count = spec.tokens.size();
  impl->ends_generation.resize(count);
  for (const int32_t id : impl->end_of_generation) impl->ends_generation[id] = true;

  impl->spelling = StringIndex(count);
  for (size_t id = 0; id < count; ++id) {
    if (!spec.tokens[id].empty()) impl->spelling.Insert(spec.tokens[id], static_cast<int32_t>(id));
  }
  impl->bytes_per_token = BoundBytesPerToken(spec);
  impl->before = spec.pipeline.before;
  impl->after = spec.pipeline.after;
  ASSIGN_OR_RETURN(impl->decoder, PieceDecoder::Create(spec.pipeline.decoders));
  impl->token_bytes.reserve(count);
  for (size_t id = 0; id < count; ++id) {
    // A user-defined token of a SentencePiece model is spelled like its other tokens.
    const bool of_model = spec.pipeline.sentencepiece && spec.pipeline.in_model[id];
    const bool verbatim = IsVerbatim(spec.types[id]) && !of_model;
    impl->token_bytes.push_back(verbatim ? spec.tokens[id] : impl->Decode(id, /*first=*/false));
  }
  ASSIGN_OR_RETURN(impl->pipeline, Pipeline::Create(spec));
  spec.pipeline = {};  // large, and no longer needed
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
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
  RETURN_IF_ERROR(impl_->pipeline->Encode(text, options.parse_special, ids));
  if (options.add_special) ids.insert(ids.end(), impl_->after.begin(), impl_->after.end());
  return ids;
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

size_t Tokenizer::leading_spaces() const { return impl_->decoder.leading_spaces(); }

std::string Tokenizer::FirstPiece(int32_t id) const {
  if (!impl_->Valid(id) || IsVerbatim(impl_->spec.types[id])) return std::string(TokenPiece(id));
  return impl_->Decode(id, /*first=*/true);
}

}  // namespace tokamak
