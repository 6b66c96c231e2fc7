#include "tokenizer/load/vocab_from_gguf.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "tokenizer/pretokenizer_table.h"

namespace tokamak {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string Key(std::string_view name) { return std::string(kPrefix) + std::string(name); }

// Reads optional keys. A value that is present must have the right type.
class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file), metadata_(file.metadata()) {}

  Status Bool(std::string_view name, bool& value) const {
    const std::string key = Key(name);
    if (!metadata_.Has(key)) return Status();
    ASSIGN_OR_RETURN(value, metadata_.Bool(key));
    return Status();
  }
  Status String(const std::string& key, std::string& value) const {
    if (!metadata_.Has(key)) return Status();
    ASSIGN_OR_RETURN(value, metadata_.String(key));
    return Status();
  }
  // Reads a token's id. An id outside the vocabulary is an error, or with `lenient` ignored:
  // converters write such ids for tokens that the model does not use.
  Status Id(std::string_view name, size_t vocab_size, bool lenient, int32_t& id) const {
    const std::string key = Key(name);
    if (!metadata_.Has(key)) return Status();
    ASSIGN_OR_RETURN(const int64_t value, metadata_.Int(key));
    if (value >= 0 && static_cast<uint64_t>(value) < vocab_size) {
      id = static_cast<int32_t>(value);
      return Status();
    }
    if (!lenient) {
      return DataLoss("{}: metadata \"{}\" is {}, but the vocabulary has {} tokens", file_.name(),
                      key, value, vocab_size);
    }
    LogWarning("{}: ignoring metadata \"{}\": {} is outside the vocabulary of {}", file_.name(),
               key, value, vocab_size);
    return Status();
  }
  // Reads an array that must be as long as the vocabulary. Empty if it is absent.
  Result<std::vector<double>> PerToken(std::string_view name, size_t vocab_size) const {
    const std::string key = Key(name);
    if (!metadata_.Has(key)) return std::vector<double>();
    ASSIGN_OR_RETURN(std::vector<double> values, metadata_.Numbers(key));
    if (values.size() != vocab_size) {
      return DataLoss("{}: metadata \"{}\" has {} elements for {} tokens", file_.name(), key,
                      values.size(), vocab_size);
    }
    return values;
  }
  const GgufMetadata& metadata() const { return metadata_; }
  const std::string& file() const { return file_.name(); }

 private:
  const GgufFile& file_;
  const GgufMetadata& metadata_;
};

// Reads the kind of tokenizer and sets its defaults.
Status ReadKind(const Reader& in, GgufVocab& spec) {
  ASSIGN_OR_RETURN(const std::string model, in.metadata().String(Key("model")));
  if (model == "gpt2" || model == "gemma4" || model == "whitespace") {
    spec.kind = TokenizerKind::kBpe;
    RETURN_IF_ERROR(in.String(Key("pre"), spec.pre_tokenizer));
    if (model != "gpt2") spec.pre_tokenizer = model;
    if (spec.pre_tokenizer.empty()) {
      LogWarning(
          "{}: the file does not name its pre-tokenizer, so text may be split differently than in "
          "training; convert the model again with current tools",
          in.file());
      spec.pre_tokenizer = "default";
    }
    const PreTokenizerRule* rule = FindPreTokenizer(spec.pre_tokenizer);
    if (rule == nullptr) {
      return Unimplemented("{}: unknown pre-tokenizer \"{}\" (metadata \"{}\")", in.file(),
                           spec.pre_tokenizer, Key("pre"));
    }
    spec.add_bos = rule->add_bos;
    spec.lowercase = false;
  } else if (model == "llama") {
    spec.kind = TokenizerKind::kSentencePieceBpe;
    spec.add_bos = true;
    spec.add_space_prefix = true;
  } else if (model == "t5") {
    spec.kind = TokenizerKind::kUnigram;
    spec.add_eos = true;
  } else if (model == "bert") {
    spec.kind = TokenizerKind::kWordPiece;
  } else {
    return Unimplemented("{}: tokenizers of kind \"{}\" are not supported (metadata \"{}\")",
                         in.file(), model, Key("model"));
  }
  return Status();
}

Status ReadTokens(const Reader& in, GgufVocab& spec) {
  ASSIGN_OR_RETURN(spec.tokens, in.metadata().Strings(Key("tokens")));
  const size_t count = spec.tokens.size();
  ASSIGN_OR_RETURN(const std::vector<double> scores, in.PerToken("scores", count));
  spec.scores.assign(scores.begin(), scores.end());
  ASSIGN_OR_RETURN(const std::vector<double> types, in.PerToken("token_type", count));
  for (size_t i = 0; i < types.size(); ++i) {
    // 0 is "undefined"; such tokens are never produced.
    const bool known = types[i] >= 1 && types[i] <= 6;
    if (!known && types[i] != 0) {
      return DataLoss("{}: metadata \"{}\"[{}] is {}, expected a token type from 0 to 6", in.file(),
                      Key("token_type"), i, types[i]);
    }
    spec.types.push_back(known ? static_cast<TokenType>(static_cast<int>(types[i]))
                               : TokenType::kUnused);
  }
  if (spec.kind == TokenizerKind::kBpe) {
    ASSIGN_OR_RETURN(spec.merges, in.metadata().Strings(Key("merges")));
  }
  return Status();
}

Status ReadSpecialIds(const Reader& in, GgufVocab& spec) {
  struct Role {
    const char* key;
    int32_t& id;
    bool lenient;
  };
  SpecialTokenIds& s = spec.special;
  const Role roles[] = {{"bos_token_id", s.bos, false},      {"eos_token_id", s.eos, false},
                        {"eot_token_id", s.eot, false},      {"eom_token_id", s.eom, false},
                        {"unknown_token_id", s.unk, false},  {"cls_token_id", s.cls, true},
                        {"seperator_token_id", s.sep, true},  // the format's spelling
                        {"padding_token_id", s.pad, true},   {"mask_token_id", s.mask, true}};
  for (const Role& role : roles) {
    RETURN_IF_ERROR(in.Id(role.key, spec.tokens.size(), role.lenient, role.id));
  }
  if (s.unk < 0) {
    const auto it = std::find(spec.types.begin(), spec.types.end(), TokenType::kUnknown);
    if (it != spec.types.end()) s.unk = static_cast<int32_t>(it - spec.types.begin());
  }
  RETURN_IF_ERROR(in.Bool("add_bos_token", spec.add_bos));
  RETURN_IF_ERROR(in.Bool("add_eos_token", spec.add_eos));
  if (spec.kind == TokenizerKind::kWordPiece) {
    // WordPiece uses [CLS] text [SEP], whatever the flags say. Older files call [CLS] bos.
    if (s.cls < 0) s.cls = s.bos;
    if (s.bos < 0) s.bos = s.cls;
    spec.add_bos = spec.add_eos = true;
  }
  // Early conversions of Gemma 4 say false, but the model needs it.
  if (spec.pre_tokenizer == "gemma4") spec.add_bos = true;
  return Status();
}

Status ReadFlags(const Reader& in, GgufVocab& spec) {
  RETURN_IF_ERROR(in.Bool("add_space_prefix", spec.add_space_prefix));
  RETURN_IF_ERROR(in.Bool("remove_extra_whitespaces", spec.remove_extra_whitespaces));
  RETURN_IF_ERROR(in.Bool("normalizer.lowercase", spec.lowercase));
  spec.strip_accents = spec.lowercase;
  RETURN_IF_ERROR(in.Bool("normalizer.strip_accents", spec.strip_accents));
  const std::string key = Key("precompiled_charsmap");
  if (in.metadata().Has(key)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> bytes, in.metadata().Ints(key));
    spec.precompiled_charsmap.reserve(bytes.size());
    for (const int64_t byte : bytes) {
      if (byte < -128 || byte > 255) {
        return DataLoss("{}: metadata \"{}\" has the element {}, expected bytes", in.file(), key,
                        byte);
      }
      spec.precompiled_charsmap.push_back(static_cast<char>(byte));
    }
  }
  return Status();
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// GGUF does not store which special tokens take the white space around them, so models with such
// tokens are recognized by name.
Status ReadStripping(const Reader& in, GgufVocab& spec) {
  std::string name, architecture;
  RETURN_IF_ERROR(in.String("general.name", name));
  RETURN_IF_ERROR(in.String("general.architecture", architecture));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const auto id_of = [&](std::string_view token) -> int32_t {
    const auto it = std::find(spec.tokens.begin(), spec.tokens.end(), token);
    return it == spec.tokens.end() ? -1 : static_cast<int32_t>(it - spec.tokens.begin());
  };
  const std::string_view pre = spec.pre_tokenizer;
  int32_t mask = -1;
  if (Contains(pre, "jina-v2-de") || Contains(pre, "jina-v2-es") || Contains(pre, "jina-v2-code") ||
      architecture == "nomic-bert-moe" || architecture == "jina-bert-v3") {
    mask = id_of("<mask>");
  } else if (Contains(name, "modern-bert")) {
    mask = id_of("[MASK]");
  } else if (Contains(name, "phi-3") || Contains(name, "phi3")) {
    for (size_t i = 0; i < spec.types.size(); ++i) {
      const std::string& token = spec.tokens[i];
      const bool special = spec.types[i] == TokenType::kControl ||
                           spec.types[i] == TokenType::kUserDefined ||
                           spec.types[i] == TokenType::kUnknown || token == "</s>";
      if (special && token != "<unk>" && token != "<s>" && token != "<|endoftext|>") {
        spec.rstrip_tokens.push_back(static_cast<int32_t>(i));
      }
    }
  }
  if (mask >= 0) spec.lstrip_tokens.push_back(mask);
  return Status();
}

}  // namespace

Result<GgufVocab> VocabFromGguf(const GgufFile& file) {
  const Reader in(file);
  GgufVocab spec;
  RETURN_IF_ERROR(ReadKind(in, spec));
  RETURN_IF_ERROR(ReadTokens(in, spec));
  RETURN_IF_ERROR(ReadSpecialIds(in, spec));
  RETURN_IF_ERROR(ReadFlags(in, spec));
  RETURN_IF_ERROR(ReadStripping(in, spec));
  return spec;
}

}  // namespace tokamak
