// Reference: llama.cpp, tools/mtmd/clip.cpp.
#include "weights/gguf_mmproj.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "weights/gguf_keys.h"
#include "weights/gguf_names.h"
#include "weights/gguf_tensors.h"
#include "weights/row_range.h"

namespace tokamak {
namespace {

constexpr std::string_view kLlava = "LlavaForConditionalGeneration";
constexpr std::string_view kQwen2Vl = "Qwen2VLForConditionalGeneration";
constexpr std::string_view kQwen25Vl = "Qwen2_5_VLForConditionalGeneration";
constexpr std::string_view kQwen3Vl = "Qwen3VLForConditionalGeneration";
constexpr std::string_view kMistral3 = "Mistral3ForConditionalGeneration";
constexpr std::string_view kGemma3 = "Gemma3ForConditionalGeneration";

// A text model that goes with a projector.
struct Pair {
  std::string_view model;         // GgufArchitecture::hf_name of the projector
  std::string_view architecture;  // of the text model in GGUF
  std::string_view text_class;
  std::string_view text_type;  // model_type in text_config
};
constexpr Pair kPairs[] = {
    {kLlava, "llama", "LlamaForCausalLM", "llama"},
    {kLlava, "qwen2", "Qwen2ForCausalLM", "qwen2"},
    {kQwen2Vl, "qwen2vl", "Qwen2ForCausalLM", "qwen2_vl_text"},
    {kQwen25Vl, "qwen2vl", "Qwen2ForCausalLM", "qwen2_5_vl_text"},
    {kQwen3Vl, "qwen3vl", "Qwen3ForCausalLM", "qwen3_vl_text"},
    {kMistral3, "llama", "LlamaForCausalLM", "mistral"},
    {kMistral3, "mistral3", "LlamaForCausalLM", "mistral"},
    {kGemma3, "gemma3", "Gemma3ForCausalLM", "gemma3_text"},
};

// The values that are read from the file.
struct Mmproj {
  const GgufArchitecture* projector = nullptr;
  JsonValue vision;           // vision_config
  JsonValue other;            // fields beside it
  JsonValue image_processor;  // as in preprocessor_config.json
  JsonValue processor;        // the fields around it in processor_config.json, if they count
  int64_t text_width = 0;     // of the text model

  std::vector<int64_t> feature_layers = {};  // Qwen3-VL: those with a merger

  bool is(std::string_view model) const { return projector->hf_name == model; }
  bool pixtral() const { return std::string_view(projector->name) == "pixtral"; }
};

// The shape of a matrix; empty and an error if there is none.
Shape ShapeOf(GgufKeyReader& keys, const GgufFile& file, const char* name) {
  const StoredTensor* tensor = file.FindTensor(name);
  if (tensor != nullptr && tensor->shape.rank() == 2) return tensor->shape;
  keys.Fail(
      DataLoss("{}: there is no matrix {}, which an image encoder has", file.name(), Quoted(name)));
  return {0, 0};
}

// Old converters called the first matrix of an MLP ffn_down, which its shape tells.
bool SwapsFfn(const GgufFile& file, int64_t width) {
  const auto reads_width = [&](const char* name) {
    const StoredTensor* tensor = file.FindTensor(name);
    return tensor != nullptr && tensor->shape.rank() == 2 && tensor->shape.cols() == width;
  };
  return reads_width("v.blk.0.ffn_down.weight") && !reads_width("v.blk.0.ffn_up.weight");
}

std::string ReadActivation(GgufKeyReader& keys) {
  const bool gelu = keys.BoolOr("use_gelu", false), silu = keys.BoolOr("use_silu", false);
  if (gelu && silu) keys.Unsupported("use_silu", "true", "it cannot be, beside use_gelu");
  return gelu ? "gelu" : silu ? "silu" : "quick_gelu";
}

// The fields of CLIP's and SigLIP's towers.
void ReadClip(GgufKeyReader& keys, const char* type, JsonValue& vision) {
  vision.Set("model_type", type);
  vision.Set("hidden_size", keys.Int("vision.embedding_length"));
  vision.Set("num_attention_heads", keys.Int("vision.attention.head_count"));
  vision.Set("num_hidden_layers", keys.Int("vision.block_count"));
  vision.Set("layer_norm_eps", keys.Number("vision.attention.layer_norm_epsilon"));
  vision.Set("image_size", keys.Int("vision.image_size"));
}

// Both sides of a square.
JsonValue Square(const JsonValue& side) {
  JsonValue size;
  size.Set("height", side);
  size.Set("width", side);
  return size;
}

// LLaVA 1.5. Its own code and llama.cpp pad images to squares.
void ReadLlava(GgufKeyReader& keys, const GgufFile& file, Mmproj& read) {
  ReadClip(keys, "clip_vision_model", read.vision);
  read.vision.Set("hidden_act", ReadActivation(keys));
  if (!keys.HasTensor("v.class_embd")) {
    keys.Fail(Unimplemented(
        "{}: there is no tensor \"v.class_embd\": of towers with an \"mlp\" projector, only CLIP's "
        "are supported",
        file.name()));
  }
  // Converters leave out the layers behind the one whose output they want.
  read.other.Set("vision_feature_layer", keys.Has("vision.feature_layer")
                                             ? keys.Ints("vision.feature_layer")
                                             : keys.Int("vision.block_count"));
  read.other.Set("vision_feature_select_strategy", "default");
  read.other.Set("projector_hidden_act", "gelu");
  read.other.Set("multimodal_projector_bias", keys.HasTensor("mm.0.bias"));
  if (keys.Has("vision.image_grid_pinpoints")) {
    keys.Unsupported("vision.image_grid_pinpoints", "there",
                     "LLaVA-NeXT is supported as a Hugging Face directory");
  }
  for (const char* key : {"has_llava_projector", "vision.image_aspect_ratio",
                          "vision.image_crop_resolution", "vision.image_split_resolution",
                          "vision.mm_patch_merge_type", "vision.mm_projector_type"}) {
    keys.Ignore(key);
  }
  const JsonValue side = keys.Int("vision.image_size");
  JsonValue size;
  size.Set("shortest_edge", side);
  read.image_processor.Set("image_processor_type", "LlavaImageProcessor");
  read.image_processor.Set("do_pad", true);
  read.image_processor.Set("size", std::move(size));
  read.image_processor.Set("crop_size", Square(side));
}

void ReadGemma3(GgufKeyReader& keys, Mmproj& read) {
  constexpr const char* kScale = "vision.projector.scale_factor";
  ReadClip(keys, "siglip_vision_model", read.vision);
  // llama.cpp's GELU is the approximation with tanh, which SigLIP has.
  const std::string activation = ReadActivation(keys);
  read.vision.Set("hidden_act", activation == "gelu" ? "gelu_pytorch_tanh" : activation);
  // Squares of so many patches per side become a row.
  const int64_t scale = keys.Has(kScale) ? keys.Size(kScale) : 4;
  const int64_t patch = keys.Size("vision.patch_size");
  const int64_t grid = patch > 0 ? keys.Size("vision.image_size") / patch : 0;
  if (scale < 1 || grid % scale != 0) {
    keys.Unsupported(kScale, std::to_string(scale),
                     fmt::format("it must divide {}, the patches per side of an image", grid));
  } else {
    read.other.Set("mm_tokens_per_image", grid / scale * (grid / scale));
  }
  read.image_processor.Set("image_processor_type", "Gemma3ImageProcessor");
  read.image_processor.Set("size", Square(keys.Int("vision.image_size")));
}

// Pixtral 12B, and with merged patches Mistral Small 3.1.
void ReadPixtral(GgufKeyReader& keys, Mmproj& read) {
  constexpr const char *kEps = "vision.attention.layer_norm_epsilon",
                       *kMerge = "vision.spatial_merge_size";
  JsonValue& vision = read.vision;
  vision.Set("model_type", "pixtral");
  vision.Set("hidden_size", keys.Int("vision.embedding_length"));
  vision.Set("num_attention_heads", keys.Int("vision.attention.head_count"));
  vision.Set("num_hidden_layers", keys.Int("vision.block_count"));
  vision.Set("image_size", keys.Int("vision.image_size"));
  vision.Set("hidden_act", ReadActivation(keys));
  if (const auto eps = keys.Number(kEps).AsDouble(); eps && static_cast<float>(*eps) != 1e-5f) {
    keys.Unsupported(kEps, fmt::format("{:g}", *eps), "the reference has 1e-5");
  }
  JsonValue merge(1);
  if (keys.Has(kMerge)) merge = keys.Int(kMerge);
  if (read.is(kMistral3)) {
    read.other.Set("spatial_merge_size", merge);
  } else {
    read.other.Set("vision_feature_select_strategy", "full");
    if (merge != 1)
      keys.Unsupported(kMerge, merge.ToString(), "there is no mm.patch_merger.weight");
  }
  read.other.Set("vision_feature_layer", -1);
  read.other.Set("projector_hidden_act", "gelu");
  read.other.Set("multimodal_projector_bias", keys.HasTensor("mm.1.bias"));
  JsonValue size;
  size.Set("longest_edge", keys.Int("vision.image_size"));
  read.image_processor.Set("image_processor_type", "PixtralImageProcessor");
  read.image_processor.Set("size", std::move(size));
  read.processor.Set("patch_size", keys.Int("vision.patch_size"));
  read.processor.Set("spatial_merge_size", merge);
}

// The tower of Qwen3-VL: positions of a square, and layers whose features go to the text model's.
void ReadQwen3(GgufKeyReader& keys, Mmproj& read) {
  JsonValue& vision = read.vision;
  vision.Set("hidden_size", keys.Int("vision.embedding_length"));
  vision.Set("out_hidden_size", read.text_width);
  if (*vision.Find("hidden_act") == "gelu") vision.Set("hidden_act", "gelu_pytorch_tanh");
  const int64_t patch = keys.Size("vision.patch_size");
  const int64_t side = patch > 0 ? keys.Size("vision.image_size") / patch : 0;
  vision.Set("num_position_embeddings", side * side);
  const JsonValue marks = keys.Bools("vision.is_deepstack_layers");
  if (const JsonValue::Array* layers = marks.AsArray()) {
    for (size_t i = 0; i < layers->size(); ++i) {
      if ((*layers)[i] == true) read.feature_layers.push_back(static_cast<int64_t>(i));
    }
  }
  vision.Set("deepstack_visual_indexes",
             JsonValue(JsonValue::Array(read.feature_layers.begin(), read.feature_layers.end())));
}

// Qwen2-VL, Qwen2.5-VL and Qwen3-VL.
void ReadQwen(GgufKeyReader& keys, Mmproj& read) {
  JsonValue& vision = read.vision;
  const int64_t merge =
      keys.Has("vision.spatial_merge_size") ? keys.Size("vision.spatial_merge_size") : 2;
  const int64_t width = keys.Size("vision.embedding_length");
  const int64_t depth = keys.Size("vision.block_count");
  vision.Set("depth", depth);
  vision.Set("num_heads", keys.Int("vision.attention.head_count"));
  vision.Set("spatial_merge_size", merge);
  vision.Set("temporal_patch_size", 2);
  vision.Set("hidden_act", ReadActivation(keys));
  if (read.is(kQwen2Vl)) {
    const int64_t inner = vision.Find("intermediate_size")->AsInt().value_or(0);
    vision.Set("embed_dim", width);
    vision.Set("hidden_size", read.text_width);
    vision.Set("mlp_ratio", width > 0 ? inner / width : 0);
    vision.Set("intermediate_size", JsonValue());
  } else if (read.is(kQwen3Vl)) {
    ReadQwen3(keys, read);
  } else {
    vision.Set("hidden_size", width);
    vision.Set("out_hidden_size", read.text_width);
    // Every nth layer attends to the whole image, the others within windows; 0: all to the whole.
    const int64_t pattern = keys.Size("vision.n_wa_pattern");
    JsonValue::Array whole;
    constexpr int64_t kMost = 10000;
    for (int64_t i = 0; i < std::min(depth, kMost); ++i) {
      if (pattern == 0 || (i + 1) % pattern == 0) whole.emplace_back(i);
    }
    vision.Set("fullatt_block_indexes", JsonValue(std::move(whole)));
    if (keys.Has("vision.window_size")) vision.Set("window_size", keys.Int("vision.window_size"));
  }
  keys.Ignore("vision.image_size");  // images have any size
  // The converter writes that of the text model; the reference has 1e-6 here.
  keys.Ignore("vision.attention.layer_norm_epsilon");
  JsonValue& processor = read.image_processor;
  processor.Set("image_processor_type", "Qwen2VLImageProcessor");
  processor.Set("patch_size", keys.Int("vision.patch_size"));
  processor.Set("merge_size", merge);
  processor.Set("temporal_patch_size", 2);
  for (const auto& [key, field] : {std::pair("vision.image_min_pixels", "min_pixels"),
                                   std::pair("vision.image_max_pixels", "max_pixels")}) {
    if (keys.Has(key)) processor.Set(field, keys.Int(key));
  }
}

Result<Mmproj> Read(const GgufFile& file) {
  ASSIGN_OR_RETURN(const std::string name, file.metadata().String("general.architecture"));
  if (name != "clip") {
    return InvalidArgument(
        "{}: is no mmproj file, which holds an image encoder: general.architecture is {} instead "
        "of \"clip\"",
        file.name(), Quoted(name));
  }
  GgufKeyReader keys(file, name);
  for (const char* other : {"has_text_encoder", "has_audio_encoder", "has_gen_audio_encoder"}) {
    if (keys.BoolOr(other, false)) keys.Unsupported(other, "true", "only images are supported");
  }
  if (!keys.BoolOr("has_vision_encoder", false)) {
    keys.Unsupported("has_vision_encoder", "false", "only images are supported");
  }
  const char* key = "projector_type";
  if (!keys.Has(key)) key = "vision.projector_type";
  const JsonValue type = keys.Has(key) ? keys.String(key) : JsonValue("mlp");
  const int64_t width = keys.Size("vision.embedding_length");
  const bool swaps = SwapsFfn(file, width);
  Mmproj read;
  const bool merges = keys.HasTensor("mm.patch_merger.weight");
  read.projector = type.AsString() ? FindGgufProjector(*type.AsString(), swaps, merges) : nullptr;
  if (read.projector == nullptr) {
    keys.Unsupported(key, type.ToString(), "supported are " + SupportedGgufProjectors());
    return keys.Finish();
  }
  // Converters write other things, too, under these two keys.
  keys.Ignore("vision.feed_forward_length");
  keys.Ignore("vision.projection_dim");
  const char* inner = swaps ? "v.blk.0.ffn_down.weight" : "v.blk.0.ffn_up.weight";
  read.vision.Set("intermediate_size", ShapeOf(keys, file, inner)[0]);
  read.vision.Set("patch_size", keys.Int("vision.patch_size"));
  read.text_width = read.is(kGemma3) ? ShapeOf(keys, file, "mm.input_projection.weight")[1]
                                     : ShapeOf(keys, file, "mm.2.weight")[0];
  if (read.pixtral()) {
    ReadPixtral(keys, read);
  } else if (read.is(kLlava)) {
    ReadLlava(keys, file, read);
  } else if (read.is(kGemma3)) {
    ReadGemma3(keys, read);
  } else {
    ReadQwen(keys, read);
  }
  for (const char* field : {"image_mean", "image_std"}) {
    read.image_processor.Set(field, keys.Numbers(fmt::format("vision.{}", field).c_str()));
  }
  RETURN_IF_ERROR(keys.Finish());
  return read;
}

// The tensors of the encoder by the names of Hugging Face, which has some of them in one piece.
class EncoderTensors final : public TensorSource {
 public:
  // `feature_layers`: Qwen3-VL's, by whose numbers their mergers are called in files.
  EncoderTensors(std::shared_ptr<TensorSource> stored, std::vector<int64_t> feature_layers)
      : stored_(std::move(stored)), feature_layers_(std::move(feature_layers)) {}

  bool Has(std::string_view name) const override {
    return stored_->Has(InFile(name)) || (IsQkv(name) && stored_->Has(PartOf(name, "q")));
  }
  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view meaning) override {
    if (IsQkv(name) && !stored_->Has(name)) {
      const int64_t rows = (expected.rank() == 1 ? expected.cols() : expected.rows()) / 3;
      const Shape part = expected.rank() == 1 ? Shape{rows} : Shape{rows, expected.cols()};
      return Join({PartOf(name, "q"), PartOf(name, "k"), PartOf(name, "v")}, part, meaning, rows,
                  expected);
    }
    // A convolution over the two frames of a patch: each frame has a tensor.
    if (expected.rank() == 5 && expected[2] == 2) {
      const Shape frame = {expected[0], expected[1], expected[3], expected[4]};
      return Join({std::string(name), std::string(name) + ".1"}, frame, meaning, expected[3],
                  expected);
    }
    return stored_->Find(InFile(name), expected, meaning);
  }
  void Skip(std::string_view prefix) override { stored_->Skip(prefix); }
  Status CheckAllUsed() const override { return stored_->CheckAllUsed(); }

 private:
  // With the number of a merger's layer in place of the merger's.
  std::string InFile(std::string_view name) const {
    constexpr std::string_view kList = "visual.deepstack_merger_list.";
    for (size_t i = 0; i < feature_layers_.size(); ++i) {
      const std::string prefix = fmt::format("{}{}.", kList, i);
      if (!name.starts_with(prefix)) continue;
      return fmt::format("{}{}.{}", kList, feature_layers_[i], name.substr(prefix.size()));
    }
    return std::string(name);
  }

  static constexpr std::string_view kQkv = ".attn.qkv.";

  static bool IsQkv(std::string_view name) { return name.find(kQkv) != std::string_view::npos; }
  static std::string PartOf(std::string_view name, std::string_view part) {
    const size_t at = name.find(kQkv);
    return fmt::format("{}.attn.{}.{}", name.substr(0, at), part, name.substr(at + kQkv.size()));
  }

  Result<std::shared_ptr<const WeightSource>> Join(const std::vector<std::string>& names,
                                                   const Shape& shape, std::string_view meaning,
                                                   int64_t run, const Shape& joined) {
    std::vector<std::shared_ptr<const WeightSource>> parts;
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(parts.emplace_back(), stored_->Find(name, shape, meaning));
      if (parts.back()->dtype() != parts.front()->dtype()) {
        return Unimplemented("{} has another type than {}, which is not supported",
                             parts.back()->name(), parts.front()->name());
      }
    }
    return RowsInTurn(std::move(parts), run, joined);
  }

  const std::shared_ptr<TensorSource> stored_;
  const std::vector<int64_t> feature_layers_;
};

// The tensors of both files.
class BothTensors final : public TensorSource {
 public:
  BothTensors(std::shared_ptr<TensorSource> text, std::shared_ptr<TensorSource> encoder)
      : text_(std::move(text)), encoder_(std::move(encoder)) {}

  bool Has(std::string_view name) const override { return Of(name).Has(name); }
  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view meaning) override {
    return Of(name).Find(name, expected, meaning);
  }
  void Skip(std::string_view prefix) override { Of(prefix).Skip(prefix); }
  Status CheckAllUsed() const override {
    RETURN_IF_ERROR(text_->CheckAllUsed());
    return encoder_->CheckAllUsed();
  }

 private:
  TensorSource& Of(std::string_view name) const {
    return IsInGgufProjector(name) ? *encoder_ : *text_;
  }

  const std::shared_ptr<TensorSource> text_, encoder_;
};

constexpr int64_t kUnknown = 2, kControl = 3, kUserDefined = 4;  // types of tokens

// The first token of these types with one of these pieces; with no pieces, with any.
std::optional<int64_t> FindToken(const GgufFile& text, std::initializer_list<int64_t> wanted_types,
                                 std::initializer_list<std::string_view> pieces) {
  const GgufValue* tokens = text.metadata().Find("tokenizer.ggml.tokens");
  const GgufValue* types = text.metadata().Find("tokenizer.ggml.token_type");
  if (tokens == nullptr || types == nullptr || !tokens->is_array() || !types->is_array()) return {};
  const auto among = [](const auto& list, const auto& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  for (uint64_t i = 0; i < std::min(tokens->size(), types->size()); ++i) {
    const int64_t type = types->Element(i).Int().value_or(0);
    const std::string_view piece = tokens->Element(i).String().value_or("");
    if (!among(wanted_types, type) || (pieces.size() > 0 && !among(pieces, piece))) continue;
    return static_cast<int64_t>(i);
  }
  return {};
}

// The token that stands for images in prompts: the vocabulary's own for that, or else its unknown
// token, which no text becomes. Its embedding is never looked up.
Result<int64_t> FindImageToken(const GgufFile& text) {
  std::optional<int64_t> token =
      FindToken(text, {kControl, kUserDefined}, {"<image>", "<|image_pad|>"});
  if (!token) token = FindToken(text, {kUnknown}, {});
  if (token) return *token;
  return InvalidArgument(
      "{}: its vocabulary has no special token <image> or <|image_pad|>, and no unknown token "
      "that could take its place in prompts, so it cannot be shown images",
      text.name());
}

// Adds the tokens around an image in prompts, and that of its rows.
Status SetImageTokens(const Mmproj& read, const GgufFile& text, JsonValue& config) {
  std::vector<std::pair<const char*, std::string_view>> special;
  if (read.is(kGemma3)) {
    special = {{"image_token_index", "<image_soft_token>"},
               {"boi_token_index", "<start_of_image>"},
               {"eoi_token_index", "<end_of_image>"}};
  } else if (read.pixtral()) {
    special = {{"image_token_index", "[IMG]"}};
  } else {
    ASSIGN_OR_RETURN(const int64_t token, FindImageToken(text));
    config.Set(read.is(kLlava) ? "image_token_index" : "image_token_id", token);
  }
  for (const auto& [field, piece] : special) {
    const std::optional<int64_t> token = FindToken(text, {kControl, kUserDefined}, {piece});
    if (!token) {
      return InvalidArgument("{}: its vocabulary has no special token {}", text.name(), piece);
    }
    config.Set(field, *token);
  }
  return Status();
}

std::string_view ArchitectureOf(const GgufFile& model) {
  const GgufValue* name = model.metadata().Find("general.architecture");
  return name != nullptr ? name->String().value_or("") : "";
}

// Refuses a text model that the encoder was not made for.
Result<Pair> CheckTogether(const Mmproj& read, const GgufFile& mmproj, const Checkpoint& text) {
  const auto* const pair = std::find_if(std::begin(kPairs), std::end(kPairs), [&](const Pair& p) {
    return read.is(p.model) && p.architecture == ArchitectureOf(*text.gguf) &&
           p.text_class == text.architecture;
  });
  if (pair == std::end(kPairs)) {
    return InvalidArgument("{}: projector_type {} does not go with the text model, {}",
                           mmproj.name(), Quoted(read.projector->name), text.architecture);
  }
  const JsonValue* width = text.config.Find("hidden_size");
  if (width != nullptr && *width != read.text_width) {
    return InvalidArgument("{}: makes rows of {} for images, but {} has {} (embedding_length)",
                           mmproj.name(), read.text_width, text.source, width->ToString());
  }
  return *pair;
}

// Adds the sections of mRoPE to a text model's configuration.
Status SetSections(const GgufFile& file, bool interleaved, JsonValue& text) {
  const std::string key = fmt::format("{}.rope.dimension_sections", ArchitectureOf(file));
  ASSIGN_OR_RETURN(const std::vector<int64_t> sections, file.metadata().Ints(key));
  // The fourth is for other models.
  if (sections.size() < 3 || sections.size() > 4 || (sections.size() == 4 && sections[3] != 0)) {
    return DataLoss("{}: metadata {} is [{}], expected three sections", file.name(), Quoted(key),
                    fmt::join(sections, ", "));
  }
  JsonValue::Array three(sections.begin(), sections.begin() + 3);
  const JsonValue* scaling = text.Find("rope_scaling");
  JsonValue rope = scaling != nullptr ? *scaling : JsonValue();
  if (scaling == nullptr) rope.Set("rope_type", "default");
  rope.Set("mrope_section", JsonValue(std::move(three)));
  if (interleaved) rope.Set("mrope_interleaved", true);
  text.Set("rope_scaling", std::move(rope));
  return Status();
}

}  // namespace

bool MayHaveMmproj(const GgufFile& model) {
  return std::any_of(std::begin(kPairs), std::end(kPairs),
                     [&](const Pair& pair) { return pair.architecture == ArchitectureOf(model); });
}

Status AddMmproj(std::shared_ptr<const GgufFile> mmproj, Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(Mmproj read, Read(*mmproj));
  ASSIGN_OR_RETURN(const Pair pair, CheckTogether(read, *mmproj, checkpoint));
  JsonValue text = checkpoint.config;
  text.Set("model_type", std::string(pair.text_type));
  if (read.is(kMistral3)) text.Set("sliding_window", JsonValue());
  const bool qwen3 = read.is(kQwen3Vl);
  if (read.is(kQwen2Vl) || read.is(kQwen25Vl) || qwen3) {
    RETURN_IF_ERROR(SetSections(*checkpoint.gguf, /*interleaved=*/qwen3, text));
  }
  JsonValue config = std::move(read.other);
  RETURN_IF_ERROR(SetImageTokens(read, *checkpoint.gguf, config));
  const JsonValue* tied = text.Find("tie_word_embeddings");
  config.Set("tie_word_embeddings", tied != nullptr && *tied == true);
  config.Set("text_config", std::move(text));
  config.Set("vision_config", std::move(read.vision));
  checkpoint.config = std::move(config);
  checkpoint.architecture = read.projector->hf_name;
  if (read.processor.is_null()) {
    checkpoint.image_processor = std::move(read.image_processor);
  } else {
    read.processor.Set("image_processor", std::move(read.image_processor));
    checkpoint.image_processor = std::move(read.processor);
  }
  for (const StoredTensor& tensor : mmproj->tensors()) {
    checkpoint.weight_bytes += static_cast<int64_t>(tensor.bytes.value_or(0));
  }
  // The tower's heads, which Pixtral's files interleave.
  const std::shared_ptr<TensorSource> encoder =
      MakeGgufTensors(mmproj, *read.projector, *checkpoint.config.Find("vision_config"));
  encoder->Skip("vision_tower.token_embd.");  // a copy of the text model's embedding of a token
  checkpoint.tensors =
      std::make_shared<BothTensors>(std::move(checkpoint.tensors),
                                    std::make_shared<EncoderTensors>(encoder, read.feature_layers));
  checkpoint.mmproj = std::move(mmproj);
  return Status();
}

Result<std::string> FindMmproj(const std::string& model_path) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(model_path).parent_path();
  if (folder.empty()) folder = ".";
  std::vector<std::string> found;
  std::error_code error;  // a folder that cannot be listed has none
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.starts_with("mmproj") && name.ends_with(".gguf")) found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  if (found.size() > 1) {
    return InvalidArgument(
        "mmproj: there are several files beside {}: {}; name one of them, or none to take only "
        "text",
        model_path, fmt::join(found, ", "));
  }
  return found.empty() ? std::string() : found.front();
}

}  // namespace tokamak
