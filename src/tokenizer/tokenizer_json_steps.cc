#include "tokenizer/tokenizer_json_steps.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/error.h"
#include "base/utf8.h"

namespace tokamak {
namespace {

constexpr size_t kMaxSteps = 256;

TextPattern ReadPattern(const JsonReader& node) {
  node.Only({"String", "Regex"});
  const bool regex = node.Has("Regex");
  return {node[regex ? "Regex" : "String"].String(),
          regex ? TextPattern::Syntax::kOniguruma : TextPattern::Syntax::kLiteral};
}

SplitBehavior ReadBehavior(const JsonReader& node) {
  const std::string name = node.String();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  if (name != "Isolated") Unsupported(node, name);
  return SplitBehavior::kIsolated;
}

std::string ReadCharacter(const JsonReader& node) {
  const std::string text = node.String();
  if (text.empty() || ValidUtf8Prefix(text) != text.size() || Utf8Length(text[0]) != text.size()) {
    node.Bad("one character");
    return " ";
  }
  return text;
}

std::string ReadBase64(const JsonReader& node) {
  std::string bytes;
  if (!DecodeBase64(node.String(), bytes)) node.Bad("base64");
  return bytes;
}

// Calls `read` with each component of a Sequence, or with the single component.
template <typename Read>
void ForEach(const JsonReader& node, const char* list, int depth, const Read& read) {
  if (node.is_null() || !node.ok()) return;
  if (node["type"].String() != "Sequence") return read(node);
  node.Only({"type", list});
  if (depth > 16) return Unsupported(node, "a Sequence nested this deep");
  const JsonReader items = node[list];
  const size_t count = items.Size();
  if (count > kMaxSteps) return Unsupported(node, "this many components");
  for (size_t i = 0; i < count && node.ok(); ++i) ForEach(items[i], list, depth + 1, read);
}

using Normalizer = NormalizerStep::Kind;

void ReadNormalizer(const JsonReader& node, PipelineSpec& spec) {
  const std::string type = node["type"].String();
  NormalizerStep step;
  const std::pair<const char*, Normalizer> plain[] = {{"NFC", Normalizer::kNfc},
                                                      {"NFD", Normalizer::kNfd},
                                                      {"NFKC", Normalizer::kNfkc},
                                                      {"NFKD", Normalizer::kNfkd},
                                                      {"Nmt", Normalizer::kNmt},
                                                      {"Lowercase", Normalizer::kLowercase},
                                                      {"StripAccents", Normalizer::kStripAccents},
                                                      {"ByteLevel", Normalizer::kByteLevel}};
  for (const auto& [name, kind] : plain) {
    if (type != name) continue;
    node.Only({"type"});
    step.kind = kind;
    spec.normalizers.push_back(std::move(step));
    return;
  }
  if (type == "Strip") {
    node.Only({"type", "strip_left", "strip_right"});
    step.kind = Normalizer::kStrip;
    step.left = node["strip_left"].Bool();
    step.right = node["strip_right"].Bool();
  } else if (type == "Replace") {
    node.Only({"type", "pattern", "content"});
    step.kind = Normalizer::kReplace;
    step.pattern = ReadPattern(node["pattern"]);
    step.content = node["content"].String();
  } else if (type == "Prepend") {
    node.Only({"type", "prepend"});
    step.kind = Normalizer::kPrepend;
    step.content = node["prepend"].String();
  } else if (type == "Precompiled") {
    node.Only({"type", "precompiled_charsmap"});
    step.kind = Normalizer::kPrecompiled;
    // Old files have null, which means no rules.
    if (!node.Has("precompiled_charsmap")) return;
    step.content = ReadBase64(node["precompiled_charsmap"]);
  } else if (type == "BertNormalizer") {
    node.Only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    step.kind = Normalizer::kBert;
    step.clean_text = node["clean_text"].Bool();
    step.chinese = node["handle_chinese_chars"].Bool();
    step.lowercase = node["lowercase"].Bool();
    step.strip_accents = node.BoolOr("strip_accents", step.lowercase);
  } else {
    return Unsupported(node["type"], type);
  }
  spec.normalizers.push_back(std::move(step));
}

using PreTokenizer = PreTokenizerStep::Kind;

void ReadMetaspace(const JsonReader& node, PreTokenizerStep& step) {
  node.Only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  step.kind = PreTokenizer::kMetaspace;
  step.replacement = ReadCharacter(node["replacement"]);
  step.split = node.BoolOr("split", true);
  const std::string scheme = node.StringOr("prepend_scheme", "always");
  if (scheme == "first") {
    step.prepend = PrependScheme::kFirst;
  } else if (scheme == "never") {
    step.prepend = PrependScheme::kNever;
  } else if (scheme != "always") {
    Unsupported(node["prepend_scheme"], scheme);
  }
  if (!node.BoolOr("add_prefix_space", true)) {
    if (node.Has("prepend_scheme") && step.prepend != PrependScheme::kNever) {
      node["add_prefix_space"].Bad("the value that prepend_scheme implies");
    }
    step.prepend = PrependScheme::kNever;
  }
}

void ReadPreTokenizer(const JsonReader& node, PipelineSpec& spec) {
  const std::string type = node["type"].String();
  PreTokenizerStep step;
  if (type == "ByteLevel") {
    node.Only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    step.kind = PreTokenizer::kByteLevel;
    step.add_prefix_space = node["add_prefix_space"].Bool();
    step.use_pattern = node.BoolOr("use_regex", true);
  } else if (type == "Split") {
    node.Only({"type", "pattern", "behavior", "invert"});
    step.kind = PreTokenizer::kSplit;
    step.pattern = ReadPattern(node["pattern"]);
    step.behavior = ReadBehavior(node["behavior"]);
    step.invert = node.BoolOr("invert", false);
  } else if (type == "Metaspace") {
    ReadMetaspace(node, step);
  } else if (type == "Digits") {
    node.Only({"type", "individual_digits"});
    step.kind = PreTokenizer::kDigits;
    step.behavior = node.BoolOr("individual_digits", false) ? SplitBehavior::kIsolated
                                                            : SplitBehavior::kContiguous;
  } else if (type == "Punctuation") {
    node.Only({"type", "behavior"});
    step.kind = PreTokenizer::kPunctuation;
    step.behavior =
        node.Has("behavior") ? ReadBehavior(node["behavior"]) : SplitBehavior::kIsolated;
  } else if (type == "CharDelimiterSplit") {
    node.Only({"type", "delimiter"});
    step.kind = PreTokenizer::kDelimiter;
    step.replacement = ReadCharacter(node["delimiter"]);
  } else if (type == "Whitespace" || type == "WhitespaceSplit" || type == "BertPreTokenizer") {
    node.Only({"type"});
    step.kind = type == "Whitespace"        ? PreTokenizer::kWhitespace
                : type == "WhitespaceSplit" ? PreTokenizer::kWhitespaceSplit
                                            : PreTokenizer::kBert;
  } else {
    return Unsupported(node["type"], type);
  }
  spec.pre_tokenizers.push_back(std::move(step));
}

// ["[SEP]", 102]
int32_t ReadTokenAndId(const JsonReader& node) {
  if (node.Size() != 2) {
    node.Bad("a token and its id");
    return 0;
  }
  return static_cast<int32_t>(node[size_t{1}].Int(0, INT32_MAX));
}

void ReadTemplate(const JsonReader& node, std::vector<int32_t>& before,
                  std::vector<int32_t>& after) {
  node.Only({"type", "single", "pair", "special_tokens"});
  const JsonReader pieces = node["single"];
  bool text_seen = false;
  for (size_t i = 0; i < pieces.Size() && node.ok(); ++i) {
    const JsonReader piece = pieces[i];
    piece.Only({"Sequence", "SpecialToken"});
    if (piece.Has("Sequence")) {
      if (text_seen || piece["Sequence"]["id"].String() != "A") piece.Bad("the text, A, once");
      text_seen = true;
      continue;
    }
    const std::string name = piece["SpecialToken"]["id"].String();
    const JsonReader ids = node["special_tokens"][name]["ids"];
    for (size_t j = 0; j < ids.Size() && node.ok(); ++j) {
      (text_seen ? after : before).push_back(static_cast<int32_t>(ids[j].Int(0, INT32_MAX)));
    }
  }
  if (!text_seen) pieces.Bad("a place for the text, A");
}

using Decoder = DecoderStep::Kind;

void ReadDecoder(const JsonReader& node, PipelineSpec& spec) {
  const std::string type = node["type"].String();
  DecoderStep step;
  if (type == "ByteLevel") {
    node.Only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    step.kind = Decoder::kByteLevel;
  } else if (type == "ByteFallback" || type == "Fuse") {
    node.Only({"type"});
    step.kind = type == "Fuse" ? Decoder::kFuse : Decoder::kByteFallback;
  } else if (type == "Metaspace") {
    PreTokenizerStep same;
    ReadMetaspace(node, same);
    step.kind = Decoder::kMetaspace;
    step.content = same.replacement;
    step.drop_first = same.prepend != PrependScheme::kNever;
  } else if (type == "Strip") {
    node.Only({"type", "content", "start", "stop"});
    step.kind = Decoder::kStrip;
    step.content = ReadCharacter(node["content"]);
    step.start = static_cast<size_t>(node["start"].Int(0, 1 << 20));
    step.stop = static_cast<size_t>(node["stop"].Int(0, 1 << 20));
  } else if (type == "Replace") {
    node.Only({"type", "pattern", "content"});
    step.kind = Decoder::kReplace;
    step.pattern = ReadPattern(node["pattern"]);
    step.content = node["content"].String();
  } else if (type == "WordPiece") {
    node.Only({"type", "prefix", "cleanup"});
    step.kind = Decoder::kWordPiece;
    step.content = node["prefix"].String();
    step.cleanup = node.BoolOr("cleanup", true);
  } else if (type == "BPEDecoder") {
    node.Only({"type", "suffix"});
    step.kind = Decoder::kBpe;
    step.content = node["suffix"].String();
  } else {
    return Unsupported(node["type"], type);
  }
  spec.decoders.push_back(std::move(step));
}

}  // namespace

void ReadNormalizers(const JsonReader& node, PipelineSpec& spec) {
  ForEach(node, "normalizers", 0, [&](const JsonReader& item) { ReadNormalizer(item, spec); });
}

void ReadPreTokenizers(const JsonReader& node, PipelineSpec& spec) {
  ForEach(node, "pretokenizers", 0, [&](const JsonReader& item) { ReadPreTokenizer(item, spec); });
}

void ReadPostProcessor(const JsonReader& node, PipelineSpec& spec) {
  ForEach(node, "processors", 0, [&](const JsonReader& item) {
    const std::string type = item["type"].String();
    std::vector<int32_t> before, after;
    if (type == "TemplateProcessing") {
      ReadTemplate(item, before, after);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      item.Only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
      before = {ReadTokenAndId(item["cls"])};
      after = {ReadTokenAndId(item["sep"])};
    } else if (type == "ByteLevel") {
      return;  // only corrects offsets
    } else {
      return Unsupported(item["type"], type);
    }
    // A later processor's tokens go around those of an earlier one.
    spec.before.insert(spec.before.begin(), before.begin(), before.end());
    spec.after.insert(spec.after.end(), after.begin(), after.end());
  });
}

void ReadDecoders(const JsonReader& node, PipelineSpec& spec) {
  if (node.is_null()) {
    DecoderStep spaces;
    spaces.kind = Decoder::kSpaces;
    spec.decoders.push_back(spaces);
  }
  ForEach(node, "decoders", 0, [&](const JsonReader& item) { ReadDecoder(item, spec); });
}

}  // namespace tokamak
