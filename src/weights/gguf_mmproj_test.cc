// Files as llama.cpp's own converters write them are in tests/golden/mmproj (models_test).
#include "weights/gguf_mmproj.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "weights/config_reader.h"
#include "weights/testing/gguf_writer.h"

namespace tokamak {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kWidth = 8, kInner = 12, kText = 16, kPatch = 2;

// Values that differ from element to element, and from tensor to tensor.
std::vector<float> Numbers(int64_t count, float first) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

struct TextOptions {
  std::string architecture = "llama";
  std::string special = "<image>";  // token 5
  int special_type = 3;
  int first_type = 1;  // of token 0; 2: unknown
  std::vector<int32_t> sections = {};
  std::vector<std::string> more_special = {};  // tokens 6 and 7
};

GgufWriter Text(const TextOptions& options) {
  GgufWriter writer;
  const std::string arch = options.architecture + ".";
  writer.Set("general.architecture", options.architecture);
  writer.Set(arch + "embedding_length", kText);
  writer.Set(arch + "block_count", 1);
  writer.Set(arch + "feed_forward_length", 24);
  writer.Set(arch + "context_length", 64);
  writer.Set(arch + "attention.head_count", 2);
  writer.Set(arch + "attention.layer_norm_rms_epsilon", 1e-5f);
  if (options.architecture == "gemma3") writer.Set(arch + "attention.sliding_window", 16);
  if (!options.sections.empty())
    writer.SetArray(arch + "rope.dimension_sections", options.sections);
  std::vector<std::string> tokens = {"<unk>", "a", "<image>", "b", "c", options.special};
  std::vector<int32_t> types = {options.first_type, 1, 1, 1, 1, options.special_type};
  tokens.insert(tokens.end(), options.more_special.begin(), options.more_special.end());
  types.resize(tokens.size(), 3);
  writer.SetArray("tokenizer.ggml.tokens", tokens);
  writer.SetArray("tokenizer.ggml.token_type", types);
  const auto count = static_cast<int64_t>(tokens.size());
  writer.AddTensor("token_embd.weight", DType::kF32, {count, kText}, Numbers(count * kText, 0));
  return writer;
}

void AddMatrix(GgufWriter& writer, const std::string& name, int rows, int cols, float first = 0) {
  writer.AddTensor(name + ".weight", DType::kF32, {rows, cols}, Numbers(rows * cols, first));
  writer.AddTensor(name + ".bias", DType::kF32, {rows}, Numbers(rows, first));
}

struct MmprojOptions {
  std::string projector = "mlp";
  bool swapped = false;  // names of an MLP's matrices, as in old files
  bool class_token = true;
  int text_width = kText;
  int image_size = 4, num_layers = 1;
  float eps = 1e-5f;
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};
};

void SetSizes(GgufWriter& writer, const MmprojOptions& options) {
  writer.Set("clip.has_vision_encoder", true);
  writer.Set("clip.vision.image_size", options.image_size);
  writer.Set("clip.vision.patch_size", kPatch);
  writer.Set("clip.vision.embedding_length", kWidth);
  writer.Set("clip.vision.feed_forward_length", 0);
  writer.Set("clip.vision.projection_dim", 512);
  writer.Set("clip.vision.block_count", options.num_layers);
  writer.Set("clip.vision.attention.head_count", 2);
  writer.Set("clip.vision.attention.layer_norm_epsilon", options.eps);
  writer.SetArray("clip.vision.image_mean", std::vector<float>{0.5f, 0.25f, 0.75f});
  writer.SetArray("clip.vision.image_std", std::vector<float>{1, 2, 4});
}

GgufWriter Encoder(const MmprojOptions& options) {
  GgufWriter writer;
  writer.Set("general.architecture", "clip");
  writer.Set("clip.projector_type", options.projector);
  SetSizes(writer, options);
  options.more(writer);
  if (options.class_token) {
    writer.AddTensor("v.class_embd", DType::kF32, {kWidth}, Numbers(kWidth, 0));
  }
  const bool qwen = options.projector.starts_with("qwen");
  const Shape patch = {kWidth, 3, kPatch, kPatch};
  writer.AddTensor("v.patch_embd.weight", DType::kF32, patch, Numbers(patch.elements(), 0));
  if (qwen) {
    writer.AddTensor("v.patch_embd.weight.1", DType::kF32, patch, Numbers(patch.elements(), 1000));
  }
  AddMatrix(writer, "v.blk.0.attn_q", kWidth, kWidth, 0);
  AddMatrix(writer, "v.blk.0.attn_k", kWidth, kWidth, 1000);
  AddMatrix(writer, "v.blk.0.attn_v", kWidth, kWidth, 2000);
  AddMatrix(writer, options.swapped ? "v.blk.0.ffn_down" : "v.blk.0.ffn_up", kInner, kWidth, 7);
  AddMatrix(writer, options.swapped ? "v.blk.0.ffn_up" : "v.blk.0.ffn_down", kWidth, kInner, 70);
  AddMatrix(writer, options.projector == "pixtral" ? "mm.1" : "mm.0", kWidth, kWidth);
  AddMatrix(writer, "mm.2", options.text_width, kWidth, 3);
  return writer;
}

std::shared_ptr<const GgufFile> File(const std::string& name, const GgufWriter& writer) {
  return GgufFile::FromParts({MakeMemoryBytes(name, writer.Bytes())}).value();
}

Result<Checkpoint> Make(const TextOptions& text, const MmprojOptions& mmproj) {
  ASSIGN_OR_RETURN(Checkpoint checkpoint, MakeGgufCheckpoint(File("text.gguf", Text(text))));
  RETURN_IF_ERROR(AddMmproj(File("mmproj.gguf", Encoder(mmproj)), checkpoint));
  return checkpoint;
}

std::string Error(const TextOptions& text, const MmprojOptions& mmproj) {
  return Make(text, mmproj).status().ToString();
}

const TextOptions kQwenText = {
    .architecture = "qwen2vl", .special = "<|image_pad|>", .sections = {1, 1, 2, 0}};
MmprojOptions Qwen25(std::function<void(GgufWriter&)> more) {
  return {.projector = "qwen2.5vl_merger", .class_token = false, .more = std::move(more)};
}

std::vector<float> Values(TensorSource& tensors, const std::string& name, const Shape& shape) {
  const auto weight = tensors.Find(name, shape);
  EXPECT_TRUE(weight.ok()) << weight.status().ToString();
  if (!weight.ok()) return {};
  EXPECT_EQ((*weight)->shape(), shape);
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  // In two reads, of which the second begins somewhere.
  const int64_t rows = shape.rows(), half = rows == 1 ? 1 : 5;
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  EXPECT_TRUE((*weight)->ReadRows(0, half, bytes).ok());
  EXPECT_TRUE((*weight)->ReadRows(half, rows, bytes + half * shape.cols() * sizeof(float)).ok());
  return values;
}

TEST(Mmproj, LlavaHasTheFieldsOfItsClass) {
  const Result<Checkpoint> made = Make({}, {});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->architecture, "LlavaForConditionalGeneration");
  ConfigReader reader = made->Reader();
  EXPECT_EQ(reader.Int("image_token_index"), 5);
  EXPECT_EQ(reader.Int("vision_feature_layer"), 1);  // of the last layer that the file has
  EXPECT_TRUE(reader.Bool("multimodal_projector_bias"));
  ConfigReader text = reader.Part("text_config"), vision = reader.Part("vision_config");
  EXPECT_EQ(text.String("model_type"), "llama");
  EXPECT_EQ(text.Int("hidden_size"), kText);
  EXPECT_EQ(vision.Int("hidden_size"), kWidth);
  EXPECT_EQ(vision.Int("intermediate_size"), kInner);
  EXPECT_EQ(vision.String("hidden_act"), "quick_gelu");
  EXPECT_FLOAT_EQ(static_cast<float>(vision.Number("layer_norm_eps")), 1e-5f);
  EXPECT_TRUE(reader.ok()) << reader.status().ToString();
  EXPECT_EQ(made->image_processor.Dump(),
            R"({"image_processor_type":"LlavaImageProcessor","do_pad":true,"size":)"
            R"({"shortest_edge":4},"crop_size":{"height":4,"width":4},)"
            R"("image_mean":[0.5,0.25,0.75],"image_std":[1.0,2.0,4.0]})");
}

TEST(Mmproj, LlavasFeatureLayerMayBeNamed) {
  const auto made = Make({}, {.more = [](GgufWriter& writer) {
                           writer.SetArray("clip.vision.feature_layer", std::vector<int32_t>{0});
                           writer.Set("clip.use_gelu", true);
                         }});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->config.Find("vision_feature_layer")->Dump(), "[0]");
  EXPECT_EQ(*made->config.Find("vision_config")->Find("hidden_act"), "gelu");
}

TEST(Mmproj, OldNamesOfAnMlpAreToldByTheirShapes) {
  for (const bool swapped : {false, true}) {
    const auto made = Make({}, {.swapped = swapped});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    const std::string mlp = "vision_tower.encoder.layers.0.mlp.";
    EXPECT_EQ(Values(*made->tensors, mlp + "fc1.weight", {kInner, kWidth})[0], 7);
    EXPECT_EQ(Values(*made->tensors, mlp + "fc1.bias", Shape{kInner})[0], 7);
    EXPECT_EQ(Values(*made->tensors, mlp + "fc2.weight", {kWidth, kInner})[0], 70);
    EXPECT_EQ(Values(*made->tensors, mlp + "fc2.bias", Shape{kWidth})[0], 70);
  }
}

TEST(Mmproj, TheTextModelsTensorsKeepTheirNames) {
  const auto made = Make({}, {});
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(made->tensors->Has("model.embed_tokens.weight"));
  EXPECT_EQ(Values(*made->tensors, "multi_modal_projector.linear_2.weight", {kText, kWidth})[1], 4);
  EXPECT_THAT(made->tensors->CheckAllUsed().ToString(), HasSubstr("text.gguf"));
  (void)Values(*made->tensors, "model.embed_tokens.weight", {6, kText});
  EXPECT_THAT(made->tensors->CheckAllUsed().ToString(),
              AllOf(HasSubstr("mmproj.gguf"), HasSubstr("\"v.class_embd\"")));
  made->tensors->Skip("vision_tower.");
  made->tensors->Skip("multi_modal_projector.");
  EXPECT_EQ(made->tensors->CheckAllUsed().ToString(), "ok");
}

TEST(Mmproj, QwensFieldsAreTheReferences) {
  const auto made = Make(kQwenText, Qwen25([](GgufWriter& writer) {
                           writer.Set("clip.use_silu", true);
                           writer.Set("clip.vision.n_wa_pattern", 1);
                         }));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->architecture, "Qwen2_5_VLForConditionalGeneration");
  const JsonValue &text = *made->config.Find("text_config"),
                  &vision = *made->config.Find("vision_config");
  EXPECT_EQ(*made->config.Find("image_token_id"), 5);
  EXPECT_EQ(text.Find("rope_scaling")->Dump(),
            R"({"rope_type":"default","mrope_section":[1,1,2]})");
  EXPECT_EQ(vision.Find("fullatt_block_indexes")->Dump(), "[0]");
  EXPECT_EQ(vision.Find("window_size"), nullptr);  // the reference's
  EXPECT_EQ(*vision.Find("out_hidden_size"), kText);
  EXPECT_EQ(made->image_processor.Dump(),
            R"({"image_processor_type":"Qwen2VLImageProcessor","patch_size":2,"merge_size":2,)"
            R"("temporal_patch_size":2,"image_mean":[0.5,0.25,0.75],"image_std":[1.0,2.0,4.0]})");
}

TEST(Mmproj, QwensTensorsAreJoined) {
  const auto made = Make(
      kQwenText, Qwen25([](GgufWriter& writer) { writer.Set("clip.vision.n_wa_pattern", 0); }));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  std::vector<float> expected;
  for (const float first : {0.0f, 1000.0f, 2000.0f}) {
    const std::vector<float> part = Numbers(kWidth * kWidth, first);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_TRUE(made->tensors->Has("visual.blocks.0.attn.qkv.weight"));
  EXPECT_EQ(Values(*made->tensors, "visual.blocks.0.attn.qkv.weight", {3 * kWidth, kWidth}),
            expected);
  const std::vector<float> bias =
      Values(*made->tensors, "visual.blocks.0.attn.qkv.bias", Shape{3 * kWidth});
  EXPECT_EQ(bias[kWidth - 1], kWidth - 1);
  EXPECT_EQ(bias[kWidth], 1000);
  EXPECT_EQ(bias[2 * kWidth + 1], 2001);
  // For each channel, both frames.
  const std::vector<float> patch =
      Values(*made->tensors, "visual.patch_embed.proj.weight", {kWidth, 3, 2, kPatch, kPatch});
  EXPECT_THAT(std::vector<float>(patch.begin(), patch.begin() + 16),
              ElementsAre(0, 1, 2, 3, 1000, 1001, 1002, 1003, 4, 5, 6, 7, 1004, 1005, 1006, 1007));
}

TEST(Mmproj, Qwen2VlHasARatioInsteadOfASize) {
  MmprojOptions options = {.projector = "qwen2vl_merger", .class_token = false};
  const auto made = Make(kQwenText, options);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->architecture, "Qwen2VLForConditionalGeneration");
  const JsonValue& vision = *made->config.Find("vision_config");
  EXPECT_EQ(*vision.Find("embed_dim"), kWidth);
  EXPECT_EQ(*vision.Find("hidden_size"), kText);
  EXPECT_EQ(*vision.Find("mlp_ratio"), kInner / kWidth);
}

const TextOptions kGemmaText = {.architecture = "gemma3",
                                .special = "<image_soft_token>",
                                .more_special = {"<end_of_image>", "<start_of_image>"}};
// With the tensors of its projector; `scale` 0: the default.
MmprojOptions Gemma3(int image_size, int scale) {
  return {.projector = "gemma3",
          .class_token = false,
          .image_size = image_size,
          .more = [=](GgufWriter& writer) {
            writer.Set("clip.use_gelu", true);
            if (scale > 0) writer.Set("clip.vision.projector.scale_factor", scale);
            writer.AddTensor("mm.input_projection.weight", DType::kF32, {kWidth, kText},
                             Numbers(kWidth * kText, 5));
            writer.AddTensor("mm.soft_emb_norm.weight", DType::kF32, {kWidth}, Numbers(kWidth, 1));
          }};
}

TEST(Mmproj, Gemma3HasTheFieldsOfItsClass) {
  const auto made = Make(kGemmaText, Gemma3(16, 0));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->architecture, "Gemma3ForConditionalGeneration");
  const JsonValue& config = made->config;
  EXPECT_EQ(*config.Find("mm_tokens_per_image"), 4);  // 8 x 8 patches, in squares of 4 x 4
  EXPECT_EQ(*config.Find("image_token_index"), 5);
  EXPECT_EQ(*config.Find("eoi_token_index"), 6);
  EXPECT_EQ(*config.Find("boi_token_index"), 7);
  EXPECT_EQ(*config.Find("text_config")->Find("model_type"), "gemma3_text");
  EXPECT_EQ(*config.Find("vision_config")->Find("model_type"), "siglip_vision_model");
  EXPECT_EQ(*config.Find("vision_config")->Find("hidden_act"), "gelu_pytorch_tanh");
  EXPECT_EQ(made->image_processor.Dump(),
            R"({"image_processor_type":"Gemma3ImageProcessor","size":{"height":16,"width":16},)"
            R"("image_mean":[0.5,0.25,0.75],"image_std":[1.0,2.0,4.0]})");
  // Files have the norm plus 1.
  EXPECT_EQ(Values(*made->tensors, "multi_modal_projector.mm_soft_emb_norm.weight", Shape{kWidth}),
            Numbers(kWidth, 0));
  EXPECT_EQ(Values(*made->tensors, "multi_modal_projector.mm_input_projection_weight",
                   {kWidth, kText})[1],
            6);
  EXPECT_EQ(*Make(kGemmaText, Gemma3(16, 2))->config.Find("mm_tokens_per_image"), 16);
  EXPECT_THAT(Error(kGemmaText, Gemma3(16, 3)),
              HasSubstr("\"clip.vision.projector.scale_factor\" is 3; it must divide 8"));
  TextOptions text = kGemmaText;
  text.more_special.pop_back();
  EXPECT_THAT(Error(text, Gemma3(16, 0)),
              HasSubstr("text.gguf: its vocabulary has no special token <start_of_image>"));
  EXPECT_THAT(Error({}, Gemma3(16, 0)), HasSubstr("\"gemma3\" does not go with the text model"));
}

TEST(Mmproj, Qwen3VlsMergersAreCalledByTheirLayers) {
  const TextOptions text = {
      .architecture = "qwen3vl", .special = "<|image_pad|>", .sections = {2, 1, 1, 0}};
  const auto qwen3 = [](const std::string& marks) {
    return MmprojOptions{.projector = "qwen3vl_merger",
                         .class_token = false,
                         .image_size = 3 * kPatch,
                         .num_layers = 4,
                         .more = [=](GgufWriter& writer) {
                           writer.Set("clip.use_gelu", true);
                           // An array (9) of booleans (7), and its length.
                           const std::string header("\x07\0\0\0\x04\0\0\0\0\0\0\0", 12);
                           if (!marks.empty())
                             writer.SetRaw("clip.vision.is_deepstack_layers", 9, header + marks);
                           AddMatrix(writer, "v.deepstack.1.fc1", kWidth, kWidth, 11);
                           AddMatrix(writer, "v.deepstack.3.fc1", kWidth, kWidth, 33);
                         }};
  };
  const auto made = Make(text, qwen3(std::string("\0\1\0\1", 4)));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->architecture, "Qwen3VLForConditionalGeneration");
  EXPECT_EQ(made->config.Find("text_config")->Find("rope_scaling")->Dump(),
            R"({"rope_type":"default","mrope_section":[2,1,1],"mrope_interleaved":true})");
  const JsonValue& vision = *made->config.Find("vision_config");
  EXPECT_EQ(vision.Find("deepstack_visual_indexes")->Dump(), "[1,3]");
  EXPECT_EQ(*vision.Find("num_position_embeddings"), 9);
  EXPECT_EQ(*vision.Find("hidden_act"), "gelu_pytorch_tanh");
  const std::string list = "visual.deepstack_merger_list.";
  EXPECT_EQ(Values(*made->tensors, list + "0.linear_fc1.weight", {kWidth, kWidth})[0], 11);
  EXPECT_EQ(Values(*made->tensors, list + "1.linear_fc1.weight", {kWidth, kWidth})[0], 33);
  EXPECT_FALSE(made->tensors->Has(list + "2.linear_fc1.weight"));
  EXPECT_THAT(Error(text, qwen3("")), HasSubstr("\"clip.vision.is_deepstack_layers\""));
}

TEST(Mmproj, PixtralsFilesSayWhetherPatchesAreMerged) {
  const TextOptions text = {.special = "[IMG]"};
  const auto pixtral = [](bool merges, float eps) {
    return MmprojOptions{
        .projector = "pixtral", .class_token = false, .eps = eps, .more = [=](GgufWriter& writer) {
          writer.Set("clip.use_silu", true);
          writer.AddTensor("v.token_embd.img_break", DType::kF32, {kText}, Numbers(kText, 0));
          if (!merges) return;
          writer.Set("clip.vision.spatial_merge_size", 2);
          writer.AddTensor("mm.patch_merger.weight", DType::kF32, {kWidth, 4 * kWidth},
                           Numbers(4 * kWidth * kWidth, 9));
        }};
  };
  for (const bool merges : {false, true}) {
    const auto made = Make(text, pixtral(merges, 1e-5f));
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    EXPECT_EQ(made->architecture,
              merges ? "Mistral3ForConditionalGeneration" : "LlavaForConditionalGeneration");
    EXPECT_EQ(*made->config.Find("image_token_index"), 5);
    EXPECT_EQ(*made->config.Find("vision_config")->Find("hidden_act"), "silu");
    EXPECT_EQ(*made->image_processor.Find("patch_size"), 2);
    EXPECT_EQ(*made->image_processor.Find("spatial_merge_size"), merges ? 2 : 1);
    EXPECT_EQ(made->image_processor.Find("image_processor")->Dump(),
              R"({"image_processor_type":"PixtralImageProcessor","size":{"longest_edge":4},)"
              R"("image_mean":[0.5,0.25,0.75],"image_std":[1.0,2.0,4.0]})");
    // Two heads of four rows, whose halves alternate in files.
    const std::vector<float> q =
        Values(*made->tensors, "vision_tower.transformer.layers.0.attention.q_proj.weight",
               {kWidth, kWidth});
    EXPECT_EQ(q[kWidth], 2 * kWidth);
    EXPECT_EQ(q[2 * kWidth], kWidth);
    EXPECT_EQ(Values(*made->tensors, "multi_modal_projector.linear_1.weight", {kWidth, kWidth})[1],
              1);
    made->tensors->Skip("model.");
    EXPECT_THAT(made->tensors->CheckAllUsed().ToString(),
                testing::Not(HasSubstr("v.token_embd.img_break")));
  }
  EXPECT_THAT(Error(text, pixtral(false, 1e-6f)),
              HasSubstr("layer_norm_epsilon\" is 1e-06; the reference has 1e-5"));
  EXPECT_THAT(Error({}, pixtral(false, 1e-5f)), HasSubstr("has no special token [IMG]"));
}

TEST(Mmproj, ImagesStandWhereTheVocabularySays) {
  const auto token = [](const TextOptions& text) {
    const auto made = Make(text, {});
    return made.ok() ? made->config.Find("image_token_index")->Dump() : made.status().ToString();
  };
  EXPECT_EQ(token({.special = "<image>", .first_type = 2}), "5");
  EXPECT_EQ(token({.special = "<|image_pad|>", .special_type = 4}), "5");
  // Without a token of its own, an image is in the place of one that no text becomes.
  EXPECT_EQ(token({.special = "<s>", .first_type = 2}), "0");
  EXPECT_EQ(token({.special = "<image>", .special_type = 1, .first_type = 2}), "0");
  EXPECT_THAT(token({.special = "<s>"}), HasSubstr("text.gguf: its vocabulary has no special token "
                                                   "<image> or <|image_pad|>, and no unknown"));
}

TEST(Mmproj, ErrorsNameTheKeyOrTheTensor) {
  const auto with = [](std::function<void(GgufWriter&)> more) {
    return MmprojOptions{.more = std::move(more)};
  };
  const auto set = [&](const char* key, auto value) {
    return with([=](GgufWriter& writer) { writer.Set(key, value); });
  };
  const std::pair<std::string, const char*> kCases[] = {
      {Error({}, {.projector = "ldp"}),
       "not supported: mmproj.gguf: metadata \"clip.projector_type\" is \"ldp\"; supported are "
       "mlp, qwen2vl_merger, qwen2.5vl_merger, qwen3vl_merger, gemma3, "
       "pixtral"},
      {Error({}, {.class_token = false}), "there is no tensor \"v.class_embd\": of towers with"},
      {Error({}, {.text_width = kText + 1}),
       "invalid argument: mmproj.gguf: makes rows of 17 for images, but text.gguf has 16"},
      {Error(kQwenText, {}), "projector_type \"mlp\" does not go with the text model, Qwen2For"},
      {Error({}, Qwen25([](GgufWriter& writer) { writer.Set("clip.vision.n_wa_pattern", 0); })),
       "projector_type \"qwen2.5vl_merger\" does not go with the text model, LlamaFor"},
      {Error({.architecture = "qwen3"}, {}), "does not go with the text model, Qwen3For"},
      {Error(kQwenText, Qwen25([](GgufWriter&) {})), "has no \"clip.vision.n_wa_pattern\""},
      {Error({}, set("clip.has_audio_encoder", true)), "\"clip.has_audio_encoder\" is true"},
      {Error({}, set("clip.zoom", 3)), "does not know the metadata \"clip.zoom\""},
      {Error({}, with([](GgufWriter& writer) {
               writer.Set("clip.use_gelu", true);
               writer.Set("clip.use_silu", true);
             })),
       "\"clip.use_silu\" is true; it cannot be"},
      {Error({}, with([](GgufWriter& writer) {
               writer.SetArray("clip.vision.image_grid_pinpoints", std::vector<int32_t>{336, 672});
             })),
       "\"clip.vision.image_grid_pinpoints\" is there; LLaVA-NeXT is supported as a Hugging Face"},
      {Error({.architecture = "qwen2vl", .special = "<image>", .sections = {1, 1}},
             Qwen25([](GgufWriter& writer) { writer.Set("clip.vision.n_wa_pattern", 0); })),
       "\"qwen2vl.rope.dimension_sections\" is [1, 1], expected three"},
  };
  for (const auto& [got, expected] : kCases) EXPECT_THAT(got, HasSubstr(expected));
}

TEST(Mmproj, FilesThatHoldNoImageEncoderAreErrors) {
  Checkpoint checkpoint = MakeGgufCheckpoint(File("text.gguf", Text({}))).value();
  const auto error = [&](const GgufWriter& writer) {
    return AddMmproj(File("other.gguf", writer), checkpoint).ToString();
  };
  EXPECT_THAT(error(Text({})), HasSubstr("other.gguf: is no mmproj file, which holds an image "
                                         "encoder: general.architecture is \"llama\""));
  GgufWriter empty;
  empty.Set("general.architecture", "clip");
  EXPECT_THAT(error(empty), HasSubstr("\"clip.has_vision_encoder\" is false"));
  SetSizes(empty, {});
  EXPECT_THAT(error(empty), HasSubstr("there is no matrix \"v.blk.0.ffn_up.weight\""));
  EXPECT_EQ(checkpoint.mmproj, nullptr);
  EXPECT_EQ(checkpoint.architecture, "LlamaForCausalLM");
}

// A folder with a model.
class MmprojFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write("model.gguf", Text({}));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const GgufWriter& writer) {
    ASSERT_TRUE(writer.WriteFile(folder_ + name).ok());
  }
  // The architecture, or the error.
  std::string Open(const std::string& mmproj = "") {
    const auto opened = OpenCheckpoint(folder_ + "model.gguf", {.mmproj = mmproj});
    return opened.ok() ? opened->architecture : opened.status().ToString();
  }

  const std::string folder_ = testing::TempDir() + "mmproj_files/";
};

TEST_F(MmprojFilesTest, TheOnlyOneBesideTheModelIsUsed) {
  EXPECT_EQ(Open(), "LlamaForCausalLM");
  Write("mmproj-f16.gguf", Encoder({}));
  EXPECT_EQ(Open(), "LlavaForConditionalGeneration");
  EXPECT_EQ(Open("none"), "LlamaForCausalLM");
  Write("other.gguf", Encoder({}));
  EXPECT_EQ(Open(), "LlavaForConditionalGeneration");
}

TEST_F(MmprojFilesTest, SeveralAreAnErrorUnlessOneIsNamed) {
  Write("mmproj-a.gguf", Encoder({}));
  Write("mmproj-b.gguf", Encoder({}));
  EXPECT_THAT(Open(), HasSubstr("mmproj: there are several files beside " + folder_ +
                                "model.gguf: " + folder_ + "mmproj-a.gguf, " + folder_ +
                                "mmproj-b.gguf; name one of them, or none"));
  EXPECT_EQ(Open(folder_ + "mmproj-b.gguf"), "LlavaForConditionalGeneration");
  EXPECT_EQ(Open("none"), "LlamaForCausalLM");
  Write("model.gguf", Text({.architecture = "qwen3"}));  // never has one
  EXPECT_EQ(Open(), "Qwen3ForCausalLM");
}

TEST_F(MmprojFilesTest, OneOfAnotherModelIsLeftOutUnlessItIsNamed) {
  Write("mmproj.gguf", Encoder({.text_width = kText + 1}));
  EXPECT_EQ(Open(), "LlamaForCausalLM");
  EXPECT_THAT(Open(folder_ + "mmproj.gguf"), HasSubstr("makes rows of 17"));
  std::ofstream(folder_ + "mmproj.gguf") << "GGUF";
  EXPECT_THAT(Open(), HasSubstr(folder_ + "mmproj.gguf"));
}

TEST_F(MmprojFilesTest, ADirectoryHasNone) {
  EXPECT_THAT(OpenCheckpoint(folder_, {.mmproj = folder_ + "mmproj.gguf"}).status().ToString(),
              HasSubstr("mmproj: " + folder_ + " is no GGUF file"));
}

}  // namespace
}  // namespace tokamak
