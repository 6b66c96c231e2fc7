#include "tokenizer/ranked_vocab.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/string_index.h"

namespace tokamak {
namespace {

// Bounds the time to O(text × kMaxTokenBytes).
constexpr size_t kMaxTokenBytes = 1024;

Status CheckTokens(const std::vector<std::string>& tokens, const std::string& source) {
  StringIndex seen(tokens.size());
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string& token = tokens[rank];
    if (token.empty() || token.size() > kMaxTokenBytes) {
      return InvalidArgument("{}: the token of rank {} has {} bytes, expected 1 to {}", source,
                             rank, token.size(), kMaxTokenBytes);
    }
    if (!seen.Insert(token, static_cast<int32_t>(rank))) {
      return InvalidArgument("{}: the token of rank {}, \"{}\", also has rank {}", source, rank,
                             ToValidUtf8(token), seen.Find(token));
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (seen.Find({&text, 1}) != StringIndex::kMissing) continue;
    return InvalidArgument("{}: there is no token for the byte 0x{:02X}", source, byte);
  }
  return Status();
}

}  // namespace

Result<VocabSpec> MakeRankedVocab(const RankedVocab& ranked, const std::string& source) {
  RETURN_IF_ERROR(CheckTokens(ranked.tokens, source));
  VocabSpec vocab;
  vocab.kind = TokenizerKind::kBpe;
  size_t count = static_cast<size_t>(ranked.first_id) + ranked.tokens.size();
  for (const auto& [id, text] : ranked.special) {
    count = std::max(count, static_cast<size_t>(id) + 1);
  }
  PipelineSpec& pipeline = vocab.pipeline;
  vocab.tokens.resize(count);
  vocab.types.resize(count, TokenType::kUnused);
  pipeline.in_model.resize(count);
  for (size_t rank = 0; rank < ranked.tokens.size(); ++rank) {
    const size_t id = static_cast<size_t>(ranked.first_id) + rank;
    vocab.tokens[id] = EncodeByteAlphabet(ranked.tokens[rank]);
    vocab.types[id] = TokenType::kNormal;
    pipeline.in_model[id] = true;
  }
  StringIndex names(ranked.special.size());
  for (const auto& [id, text] : ranked.special) {
    if (!names.Insert(text, id)) {
      return InvalidArgument("{}: the special token \"{}\" appears twice", source,
                             ToValidUtf8(text));
    }
    const auto at = static_cast<size_t>(id);
    if (!vocab.tokens[at].empty()) {
      return InvalidArgument("{}: the special token \"{}\" has the id {}, which another token has",
                             source, ToValidUtf8(text), id);
    }
    vocab.tokens[at] = text;
    vocab.types[at] = TokenType::kControl;
    AddedToken token;
    token.id = id;
    token.special = true;
    token.normalized = ranked.nfc;  // searched in the text that is encoded
    pipeline.added.push_back(token);
  }
  pipeline.merge_by_id = true;
  pipeline.ignore_merges = true;
  if (ranked.nfc) pipeline.normalizers.emplace_back().kind = NormalizerStep::Kind::kNfc;
  PreTokenizerStep split, bytes;
  split.kind = PreTokenizerStep::Kind::kSplit;
  split.pattern = {ranked.pattern, TextPattern::Syntax::kOniguruma};
  bytes.kind = PreTokenizerStep::Kind::kByteLevel;
  bytes.use_pattern = false;
  pipeline.pre_tokenizers = {std::move(split), std::move(bytes)};
  pipeline.decoders.emplace_back().kind = DecoderStep::Kind::kByteLevel;
  return vocab;
}

}  // namespace tokamak
