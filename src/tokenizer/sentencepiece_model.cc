#include "tokenizer/sentencepiece_model.h"

#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_tokens.h"
#include "tokenizer/escaped_space.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/proto_reader.h"
#include "tokenizer/string_index.h"

namespace tokamak {
namespace {

using Field = ProtoReader::Field;
using WireType = ProtoReader::WireType;

constexpr size_t kMaxPieces = size_t{1} << 24;
// Bounds the time to O(text × kMaxPieceBytes).
constexpr size_t kMaxPieceBytes = 1024;

// Field numbers of sentencepiece_model.proto.
namespace model {
constexpr uint32_t kPieces = 1, kTrainer = 2, kNormalizer = 3, kSelfTest = 4, kDenormalizer = 5;
}
namespace piece {
constexpr uint32_t kText = 1, kScore = 2, kType = 3;
}
namespace trainer {
constexpr uint32_t kModelType = 3, kSpaceAsSuffix = 24, kByteFallback = 35, kUnk = 45, kBos = 46,
                   kEos = 47, kPad = 48;
}
namespace normalizer {
constexpr uint32_t kName = 1, kCharsmap = 2, kDummyPrefix = 3, kRemoveExtraSpaces = 4,
                   kEscapeSpaces = 5, kRules = 6;
}
constexpr uint32_t kFirstExtension = 200;
constexpr uint64_t kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4;

class Reader {
 public:
  Reader(const std::string& source, VocabSpec& vocab)
      : source_(source), vocab_(vocab), pipeline_(vocab.pipeline) {
    text_.kind = NormalizerStep::Kind::kSentencePiece;
    text_.merge_spaces = true;
  }

  Status Read(std::string_view bytes) {
    RETURN_IF_ERROR(ForEachField(bytes, "", [&](const Field& field) { return ReadField(field); }));
    if (vocab_.tokens.empty()) return Bad("pieces", "the model has no pieces");
    if (model_type_ == kWord || model_type_ == kChar) {
      return Unimplemented(
          "{}: trainer_spec.model_type: the type {} is not supported; use BPE or Unigram", source_,
          model_type_ == kWord ? "WORD" : "CHAR");
    }
    if (model_type_ != kBpe && model_type_ != kUnigram) {
      return Bad("trainer_spec.model_type", "is not a known type");
    }
    RETURN_IF_ERROR(CheckPieces());
    Finish();
    return Status();
  }

 private:
  Status Bad(const std::string& field, const std::string& what) const {
    return InvalidArgument("{}: {}: {}", source_, field, what);
  }

  // Calls `read` with each field of the message called `name`.
  template <typename Read>
  Status ForEachField(std::string_view bytes, const std::string& name, const Read& read) const {
    ProtoReader reader(bytes);
    Field field;
    while (reader.Next(field)) RETURN_IF_ERROR(read(field));
    if (reader.error() == nullptr) return Status();
    return InvalidArgument("{}: {}{}malformed at byte {} of {}: {}", source_, name,
                           name.empty() ? "" : ": ", reader.offset(), bytes.size(), reader.error());
  }

  Status Expect(const Field& field, WireType type, const char* name) const {
    if (field.type == type) return Status();
    return Bad(name, "has the wrong type for this field");
  }

  Status ReadField(const Field& field) {
    if (field.number >= kFirstExtension) return Status();
    RETURN_IF_ERROR(Expect(field, WireType::kBytes, "the model"));
    switch (field.number) {
      case model::kPieces:
        return ReadPiece(field.bytes);
      case model::kTrainer:
        return ForEachField(field.bytes, "trainer_spec",
                            [&](const Field& f) { return ReadTrainer(f); });
      case model::kNormalizer:
        return ForEachField(field.bytes, "normalizer_spec",
                            [&](const Field& f) { return ReadNormalizer(f); });
      case model::kSelfTest:
        return Status();
      case model::kDenormalizer:
        return ForEachField(field.bytes, "denormalizer_spec", [&](const Field& f) {
          if (f.number != normalizer::kCharsmap || f.bytes.empty()) return Status();
          return Unimplemented("{}: denormalizer_spec.precompiled_charsmap: is not supported",
                               source_);
        });
      default:
        return Unimplemented("{}: field {} of the model is not supported", source_, field.number);
    }
  }

  Status ReadPiece(std::string_view bytes) {
    const size_t id = vocab_.tokens.size();
    const auto name = [&] { return fmt::format("pieces[{}]", id); };
    if (id >= kMaxPieces) return Bad(name(), fmt::format("at most {} are supported", kMaxPieces));
    std::string_view text;
    float score = 0;
    uint64_t type = static_cast<uint64_t>(TokenType::kNormal);
    ProtoReader reader(bytes);
    Field field;
    while (reader.Next(field)) {
      const WireType wanted = field.number == piece::kText    ? WireType::kBytes
                              : field.number == piece::kScore ? WireType::kFixed32
                                                              : WireType::kVarint;
      if (field.number > piece::kType) continue;
      if (field.type != wanted) return Bad(name(), "a field has the wrong type");
      if (field.number == piece::kText) text = field.bytes;
      if (field.number == piece::kScore) score = field.AsFloat();
      if (field.number == piece::kType) type = field.value;
    }
    if (reader.error() != nullptr) return Bad(name(), std::string("malformed: ") + reader.error());
    if (text.empty()) return Bad(name() + ".piece", "is missing or empty");
    if (text.size() > kMaxPieceBytes) {
      return Bad(name() + ".piece", fmt::format("has {} bytes; at most {} are supported",
                                                text.size(), kMaxPieceBytes));
    }
    if (ValidUtf8Prefix(text) != text.size()) return Bad(name() + ".piece", "is not valid UTF-8");
    if (!std::isfinite(score)) return Bad(name() + ".score", "is not finite");
    if (type < static_cast<uint64_t>(TokenType::kNormal) ||
        type > static_cast<uint64_t>(TokenType::kByte)) {
      return Bad(name() + ".type", fmt::format("is {}, expected 1 to 6", type));
    }
    vocab_.tokens.emplace_back(text);
    pipeline_.scores.push_back(score);
    vocab_.types.push_back(static_cast<TokenType>(type));
    return Status();
  }

  Status ReadTrainer(const Field& field) {
    switch (field.number) {
      case trainer::kModelType:
        model_type_ = field.value;
        return Expect(field, WireType::kVarint, "trainer_spec.model_type");
      case trainer::kSpaceAsSuffix:
        text_.append_space = field.value != 0;
        return Expect(field, WireType::kVarint, "trainer_spec.treat_whitespace_as_suffix");
      case trainer::kByteFallback:
        pipeline_.byte_fallback = field.value != 0;
        return Expect(field, WireType::kVarint, "trainer_spec.byte_fallback");
      case trainer::kUnk:
      case trainer::kBos:
      case trainer::kEos:
      case trainer::kPad:
        names_[field.number - trainer::kUnk] = field.bytes;
        return Expect(field, WireType::kBytes, "trainer_spec: a token's name");
      default:
        return Status();  // only for training
    }
  }

  Status ReadNormalizer(const Field& field) {
    switch (field.number) {
      case normalizer::kName:
      case normalizer::kRules:
        return Status();  // source of the charsmap
      case normalizer::kCharsmap:
        text_.content = field.bytes;
        return Expect(field, WireType::kBytes, "normalizer_spec.precompiled_charsmap");
      case normalizer::kDummyPrefix:
        text_.prepend = field.value != 0 ? PrependScheme::kAlways : PrependScheme::kNever;
        return Expect(field, WireType::kVarint, "normalizer_spec.add_dummy_prefix");
      case normalizer::kRemoveExtraSpaces:
        text_.merge_spaces = field.value != 0;
        return Expect(field, WireType::kVarint, "normalizer_spec.remove_extra_whitespaces");
      case normalizer::kEscapeSpaces:
        text_.escape_spaces = field.value != 0;
        return Expect(field, WireType::kVarint, "normalizer_spec.escape_whitespaces");
      default:
        if (field.number >= kFirstExtension) return Status();
        return Unimplemented("{}: field {} of normalizer_spec is not supported", source_,
                             field.number);
    }
  }

  // Checks the pieces against each other.
  Status CheckPieces() {
    StringIndex ordinary(vocab_.tokens.size()), reserved;
    std::array<bool, 256> bytes{};
    for (size_t id = 0; id < vocab_.tokens.size(); ++id) {
      const std::string& text = vocab_.tokens[id];
      const TokenType type = vocab_.types[id];
      const std::string name = fmt::format("pieces[{}]", id);
      const bool is_reserved =
          type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kByte;
      if (!(is_reserved ? reserved : ordinary).Insert(text, static_cast<int32_t>(id))) {
        return Bad(name + ".piece", fmt::format("\"{}\" appears twice", text));
      }
      if (type == TokenType::kUnknown) {
        if (vocab_.special.unk >= 0) return Bad(name + ".type", "is a second unknown token");
        vocab_.special.unk = static_cast<int32_t>(id);
      }
      if (type != TokenType::kByte) continue;
      const int byte = ParseByteToken(text);
      if (byte < 0) return Bad(name + ".piece", "is not a byte such as <0x0A>");
      if (!pipeline_.byte_fallback) {
        return Bad(name + ".type", "is a byte, but trainer_spec.byte_fallback is false");
      }
      bytes[static_cast<size_t>(byte)] = true;
    }
    if (vocab_.special.unk < 0) return Bad("pieces", "there is no unknown token");
    for (size_t byte = 0; byte < bytes.size() && pipeline_.byte_fallback; ++byte) {
      if (!bytes[byte]) {
        return Bad(
            "pieces",
            fmt::format("<0x{:02X}> is missing, but trainer_spec.byte_fallback is true", byte));
      }
    }
    SpecialTokenIds& special = vocab_.special;
    int32_t* roles[] = {&special.unk, &special.bos, &special.eos, &special.pad};
    for (size_t i = 1; i < names_.size(); ++i) {
      const int32_t id = reserved.Find(names_[i]);
      if (id >= 0 && vocab_.types[static_cast<size_t>(id)] == TokenType::kControl) *roles[i] = id;
    }
    return Status();
  }

  void Finish() {
    vocab_.kind = model_type_ == kBpe ? TokenizerKind::kSentencePieceBpe : TokenizerKind::kUnigram;
    vocab_.add_bos = vocab_.special.bos >= 0;
    pipeline_.unk = vocab_.special.unk;
    pipeline_.sentencepiece = true;
    for (size_t id = 0; id < vocab_.tokens.size(); ++id) {
      const TokenType type = vocab_.types[id];
      const bool unused = type == TokenType::kUnused && model_type_ == kBpe;
      pipeline_.in_model.push_back(type == TokenType::kNormal || type == TokenType::kUserDefined ||
                                   unused);
      if (type == TokenType::kUserDefined) text_.verbatim.push_back(vocab_.tokens[id]);
      if (type != TokenType::kControl && type != TokenType::kUnknown) continue;
      AddedToken token;
      token.id = static_cast<int32_t>(id);
      token.special = true;
      pipeline_.added.push_back(token);
    }
    const bool adds_space = text_.prepend != PrependScheme::kNever || text_.merge_spaces;
    pipeline_.decoders = UnescapeSpaces(/*drop_first=*/adds_space && text_.escape_spaces);
    pipeline_.normalizers.push_back(std::move(text_));
  }

  const std::string& source_;
  VocabSpec& vocab_;
  PipelineSpec& pipeline_;
  NormalizerStep text_;
  uint64_t model_type_ = kUnigram;
  // Names of the unknown, begin, end and padding tokens.
  std::array<std::string_view, 4> names_ = {"<unk>", "<s>", "</s>", "<pad>"};
};

}  // namespace

Result<VocabSpec> ParseSentencePieceModel(std::string_view bytes, const std::string& source) {
  VocabSpec vocab;
  RETURN_IF_ERROR(Reader(source, vocab).Read(bytes));
  return vocab;
}

bool IsSentencePieceModel(std::string_view bytes) {
  ProtoReader reader(bytes);
  Field field;
  if (!reader.Next(field) || field.number != model::kPieces || field.type != WireType::kBytes) {
    return false;
  }
  ProtoReader first(field.bytes);
  return first.Next(field) && field.number == piece::kText && field.type == WireType::kBytes;
}

}  // namespace tokamak
