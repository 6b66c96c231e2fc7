#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/tokenizer_json_steps.h"
#include "tokenizer/tokenizer_reader.h"

namespace tokamak {
namespace {

// Gaps between ids cost memory, so only a few are allowed.
constexpr size_t kMaxGaps = size_t{1} << 16;
constexpr int32_t kMaxId = (1 << 24) - 1;

class Reader {
 public:
  Reader(const JsonReader& root, VocabSpec& vocab)
      : root_(root), vocab_(vocab), pipeline_(vocab.pipeline) {}

  void Read() {
    root_.Only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                "post_processor", "decoder", "model"});
    ReadModel(root_["model"]);
    if (root_.ok() && root_.Has("added_tokens")) ReadAddedTokens(root_["added_tokens"]);
    ReadNormalizers(root_["normalizer"], pipeline_);
    ReadPreTokenizers(root_["pre_tokenizer"], pipeline_);
    ReadPostProcessor(root_["post_processor"], pipeline_);
    ReadDecoders(root_["decoder"], pipeline_);
    for (const auto* ids : {&pipeline_.before, &pipeline_.after}) {
      for (const int32_t id : *ids) {
        if (static_cast<size_t>(id) >= vocab_.tokens.size()) {
          root_["post_processor"].Bad("ids of tokens in the vocabulary");
        }
      }
    }
  }

 private:
  void ReadModel(const JsonReader& model) {
    vocab_size_ = model["vocab"].value().size();
    std::string type = model.StringOr("type", "");
    // Old files do not state the type; their members reveal it.
    if (type.empty()) {
      type = model.Has("merges") ? "BPE" : model.Has("unk_id") ? "Unigram" : "WordPiece";
    }
    if (type == "BPE") {
      ReadBpe(model);
    } else if (type == "Unigram") {
      ReadUnigram(model);
    } else if (type == "WordPiece") {
      model.Only(
          {"type", "vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"});
      vocab_.kind = TokenizerKind::kWordPiece;
      ReadVocabulary(model["vocab"]);
      pipeline_.continuing_prefix = model.StringOr("continuing_subword_prefix", "##");
      if (model.Has("max_input_chars_per_word")) {
        pipeline_.max_word_characters =
            static_cast<size_t>(model["max_input_chars_per_word"].Int(1, 1 << 20));
      }
      pipeline_.unk = FindToken(model["unk_token"]);
    } else {
      Unsupported(model["type"], type);
    }
    vocab_.special.unk = pipeline_.unk;
  }

  void ReadBpe(const JsonReader& model) {
    model.Only({"type", "vocab", "merges", "dropout", "unk_token", "continuing_subword_prefix",
                "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges"});
    vocab_.kind = TokenizerKind::kBpe;
    // Dropout is noise for training.
    if (model.Has("dropout") && model["dropout"].Number() != 0) Unsupported(model, "dropout");
    ReadVocabulary(model["vocab"]);
    pipeline_.continuing_prefix = model.StringOr("continuing_subword_prefix", "");
    pipeline_.word_suffix = model.StringOr("end_of_word_suffix", "");
    pipeline_.fuse_unk = model.BoolOr("fuse_unk", false);
    pipeline_.byte_fallback = model.BoolOr("byte_fallback", false);
    pipeline_.ignore_merges = model.BoolOr("ignore_merges", false);
    if (model.Has("unk_token")) pipeline_.unk = FindToken(model["unk_token"]);
    ReadMerges(model["merges"]);
  }

  // "left right", or ["left", "right"].
  void ReadMerges(const JsonReader& merges) {
    const size_t count = merges.Size();
    pipeline_.merges.reserve(count);
    for (size_t i = 0; i < count && root_.ok(); ++i) {
      const JsonValue& merge = (*merges.value().AsArray())[i];
      const JsonValue::Array* pair = merge.AsArray();
      if (pair != nullptr && pair->size() == 2 && (*pair)[0].is_string() &&
          (*pair)[1].is_string()) {
        pipeline_.merges.emplace_back(*(*pair)[0].AsString(), *(*pair)[1].AsString());
        continue;
      }
      const std::string* text = merge.AsString();
      if (text == nullptr) return merges[i].Bad("a string");
      const size_t space = text->find(' ');
      if (space == std::string::npos || text->find(' ', space + 1) != std::string::npos) {
        return merges[i].Bad("two tokens with a space between");
      }
      pipeline_.merges.emplace_back(text->substr(0, space), text->substr(space + 1));
    }
  }

  void ReadUnigram(const JsonReader& model) {
    model.Only({"type", "unk_id", "vocab", "byte_fallback"});
    vocab_.kind = TokenizerKind::kUnigram;
    const JsonReader vocab = model["vocab"];
    const size_t count = vocab.Size();
    if (count > static_cast<size_t>(kMaxId)) return Unsupported(vocab, "this many tokens");
    for (size_t i = 0; i < count && root_.ok(); ++i) {
      const JsonValue::Array* pair = (*vocab.value().AsArray())[i].AsArray();
      if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
          !(*pair)[1].is_number()) {
        return vocab[i].Bad("a token and its score");
      }
      vocab_.tokens.push_back(*(*pair)[0].AsString());
      pipeline_.scores.push_back(*(*pair)[1].AsNumber());
    }
    pipeline_.in_model.assign(count, true);
    pipeline_.byte_fallback = model.BoolOr("byte_fallback", false);
    if (model.Has("unk_id")) {
      pipeline_.unk = static_cast<int32_t>(
          model["unk_id"].Int(0, static_cast<int64_t>(vocab_.tokens.size()) - 1));
    }
  }

  // {"token": id, ...}
  void ReadVocabulary(const JsonReader& vocab) {
    if (!vocab.is_object()) return vocab.Bad("an object");
    for (const auto& [token, value] : *vocab.value().AsObject()) {
      const int64_t id = value.AsInt().value_or(-1);
      if (id < 0 || id > kMaxId) {
        return vocab.Fail(InvalidArgument("{}: \"{}\" has no usable id", vocab.path(), token));
      }
      if (!Place(static_cast<int32_t>(id), token)) {
        return vocab.Fail(
            InvalidArgument("{}: \"{}\" has id {}, which is another token's or leaves a large gap",
                            vocab.path(), token, id));
      }
      pipeline_.in_model[static_cast<size_t>(id)] = true;
    }
  }

  // Puts a token at its id. Returns false if another one is there.
  bool Place(int32_t id, const std::string& token) {
    const auto at = static_cast<size_t>(id);
    if (at >= vocab_.tokens.size()) {
      if (at > 4 * vocab_size_ + kMaxGaps) return false;
      vocab_.tokens.resize(at + 1);
      pipeline_.in_model.resize(at + 1);
    }
    if (!vocab_.tokens[at].empty() && vocab_.tokens[at] != token) return false;
    vocab_.tokens[at] = token;
    return true;
  }

  int32_t FindToken(const JsonReader& node) {
    const std::string token = node.String();
    const JsonValue* found = root_["model"]["vocab"].value().Find(token);
    const int64_t id = found == nullptr ? -1 : std::max<int64_t>(found->AsInt().value_or(-1), -1);
    // Files of byte-level models name an unknown token that they never use.
    if (id < 0 && vocab_.kind != TokenizerKind::kBpe) node.Bad("a token of the vocabulary");
    return root_.ok() ? static_cast<int32_t>(id) : -1;
  }

  void ReadAddedTokens(const JsonReader& added) {
    const size_t count = added.Size();
    for (size_t i = 0; i < count && root_.ok(); ++i) {
      const JsonReader item = added[i];
      item.Only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      AddedToken token;
      token.id = static_cast<int32_t>(item["id"].Int(0, kMaxId));
      const std::string content = item["content"].String();
      token.special = item.BoolOr("special", false);
      token.single_word = item.BoolOr("single_word", false);
      token.lstrip = item.BoolOr("lstrip", false);
      token.rstrip = item.BoolOr("rstrip", false);
      token.normalized = item.BoolOr("normalized", !token.special);
      if (!root_.ok()) return;
      if (content.empty()) continue;
      if (!Place(token.id, content)) {
        return item["content"].Fail(InvalidArgument(
            "{}: id {} is another token's or leaves a large gap", item.path(), token.id));
      }
      vocab_.types.resize(vocab_.tokens.size(), TokenType::kNormal);
      vocab_.types[static_cast<size_t>(token.id)] =
          token.special ? TokenType::kControl : TokenType::kUserDefined;
      pipeline_.added.push_back(token);
    }
  }

  const JsonReader root_;
  size_t vocab_size_ = 0;
  VocabSpec& vocab_;
  PipelineSpec& pipeline_;
};

}  // namespace

Result<VocabSpec> ParseTokenizerJson(std::string_view json, const std::string& source) {
  ASSIGN_OR_RETURN(const JsonValue file, ParseTokenizerObject(json, source));
  const JsonReader root = ReadTokenizerObject(file, source);
  VocabSpec vocab;
  Reader(root, vocab).Read();
  RETURN_IF_ERROR(root.status());
  const size_t count = vocab.tokens.size();
  vocab.types.resize(count, TokenType::kNormal);
  vocab.pipeline.in_model.resize(count);
  if (!vocab.pipeline.scores.empty()) vocab.pipeline.scores.resize(count);
  for (size_t id = 0; id < count; ++id) {
    if (vocab.tokens[id].empty()) vocab.types[id] = TokenType::kUnused;  // a gap
  }
  return vocab;
}

}  // namespace tokamak
