#include "models/testing/mutations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include "base/check.h"
#include "models/testing/backends.h"
#include "models/testing/harness.h"
#include "models/testing/images.h"
#include "nn/testing/random_tensors.h"

namespace tokamak::testing {
namespace {

using Json = nlohmann::ordered_json;
using Values = std::vector<const char*>;  // in JSON
using Use = ConfigReader::Use;

// Values to try for a field, by its last name. At least one differs from every configuration's.
const Values kAnyField = {"3", "2", "1", "0.3", "true", "false"};
const std::map<std::string_view, Values> kValues = {
    {"vocab_size", {"60"}},  // more than the ids of the tokens that run
    {"hidden_size", {"48"}},
    {"d_model", {"48"}},
    {"head_dim", {"12"}},
    {"n_routed_experts", {"12"}},
    {"hidden_act", {R"("gelu_pytorch_tanh")"}},
    {"hidden_activation", {R"("silu")"}},
    {"topk_method", {R"("greedy")"}},
    {"mlp_only_layers", {"[1]"}},
    {"no_rope_layers", {"[1, 0, 1, 1]"}},
    {"layer_types",
     {R"(["full_attention", "sliding_attention", "full_attention", "full_attention"])",
      R"(["full_attention", "linear_attention", "full_attention", "full_attention"])"}},
    {"short_factor", {"[1.0, 5.0]", "[1.0, 2.0, 3.0, 5.0]"}},
    {"long_factor", {"[1.0, 5.0]", "[1.0, 2.0, 3.0, 5.0]"}},
    {"rope_scaling", {R"({"rope_type": "linear", "factor": 8.0})", "null"}},
    {"rope_parameters", {R"({"rope_theta": 2000.0})", "null"}},
    {"full_attention", {R"({"rope_theta": 2000.0})"}},
    {"sliding_attention", {R"({"rope_theta": 200.0})"}},
    {"attn_config", {"null"}},
    {"image_size", {"12"}},
    {"image_grid_pinpoints", {"[[60, 120]]"}},
    {"projector_hidden_act", {R"("gelu_pytorch_tanh")"}},
    {"vision_feature_select_strategy", {R"("full")"}},
    {"vision_feature_layer", {"[1, 1]", "1"}},
    {"embed_dim", {"48"}},
    {"mrope_section", {"[2, 1]", "[4, 1, 1]"}},
    {"window_size", {"12"}},
    {"fullatt_block_indexes", {"[0]"}},
    {"deepstack_visual_indexes", {"[1]"}},
    {"downsample_mode", {R"("4x")"}},
};

struct Outcome {
  Status status;
  std::vector<float> logits;
  ConfigReader::Uses uses;
};

// Whether images keep about their size.
bool InPatches(const Json& vision) { return vision.contains("depth"); }

// An image as the configuration wants it: in tiles of its image_size, in patches of its sizes, or
// for Pixtral in rows of them. For MiniCPM-V, one with two rows.
GoldenImage ImageFor(const Json& config) {
  const Json& vision = config.at("vision_config");
  GoldenImage image;
  image.grid = {0, 0};
  image.size = {30, 17};
  if (vision.value("model_type", "") == "pixtral") {
    const int32_t merge = config.value("spatial_merge_size", 1), patch = vision["patch_size"];
    image.grid = {2, 2};
    image.shape = {1, 3, 2 * merge * patch, 2 * merge * patch};
  } else if (config.contains("insert_layer_id")) {
    const int32_t patch = vision["patch_size"];
    image.grid = {8, 4};
    image.shape = {32, 3, patch, patch};
  } else if (!InPatches(vision)) {
    const int32_t side = vision["image_size"];
    if (config.contains("image_grid_pinpoints")) {
      const std::vector<int32_t> pixels = config["image_grid_pinpoints"][0];
      image.grid = {pixels[0] / side, pixels[1] / side};
    }
    image.shape = {1 + image.grid[0] * image.grid[1], 3, side, side};
  } else {
    const int32_t merge = vision.value("spatial_merge_size", 2), patch = vision["patch_size"];
    image.grid = {3 * merge, 2 * merge};
    image.shape = {6 * merge * merge, 3, vision.value("temporal_patch_size", 2), patch, patch};
  }
  size_t count = 1;
  for (const int32_t n : image.shape) count *= static_cast<size_t>(n);
  image.values = PixelValues(count, 1);
  return image;
}

// The first row, the last one, the second one, ...: few tokens of the test stand for rows. The very
// last one is LLaVA-NeXT's newline, which is the same for all images.
ImageRows FromBothEnds(const ImageRows& rows) {
  ImageRows result;
  for (size_t begin = 0, end = rows.size() - 1; begin < end; ++begin) {
    result.push_back(rows[begin]);
    if (begin < --end) result.push_back(rows[end]);
  }
  return result;
}

Outcome Run(const std::string& config_json, const char* optional_tensor = nullptr,
            LoadOptions options = {}) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  Checkpoint checkpoint = MakeRandomCheckpoint(config_json, 4);
  if (optional_tensor != nullptr) {
    static_cast<RandomTensors&>(*checkpoint.tensors).optional.insert(optional_tensor);
  }
  const bool encoder = IsEncoder(checkpoint.architecture);
  if (encoder) options.task = Task::kEmbed;
  const ConfigReader reader = checkpoint.Reader();
  const Result<std::unique_ptr<Model>> model = LoadModel(checkpoint, reader, *ops, options);
  Outcome outcome = {.status = model.status(), .logits = {}, .uses = reader.uses()};
  if (!model.ok()) return outcome;
  std::vector<int32_t> tokens(100);
  std::mt19937 random(8);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 50);
  HarnessOptions options_of_run = {.arena_bytes = 8 << 20, .hidden_states = encoder};
  if ((*model)->image_encoder() != nullptr) {
    const Json config = Json::parse(config_json);
    TinyGolden golden;
    golden.images = {ImageFor(config)};
    options_of_run = WithImages(std::move(options_of_run), **model, *ops, golden);
    if (!InPatches(config["vision_config"])) {
      // Placeholders of rows, unless a mutant has another one.
      std::fill(tokens.begin() + 10, tokens.begin() + 20, 7);
      options_of_run.image_rows = FromBothEnds(options_of_run.image_rows);
    }
  }
  Harness harness(**model, *ops, options_of_run);
  outcome.logits = harness.Run(tokens, 1).front();
  return outcome;
}

bool Differ(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return true;
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, double{std::abs(a[i] - b[i])});
  }
  return difference > 1e-6;
}

std::string LastName(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// Returns `config` with the value at `path`, where a dot enters an object.
std::string With(Json config, const std::string& path, const char* value) {
  Json* at = &config;
  size_t begin = 0;
  for (size_t dot; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1) {
    at = &(*at)[path.substr(begin, dot - begin)];
  }
  (*at)[path.substr(begin)] = Json::parse(value);
  return config.dump();
}

const Values& ValuesFor(const std::string& path) {
  const auto known = kValues.find(LastName(path));
  return known == kValues.end() ? kAnyField : known->second;
}

// Returns whether a value of this field changes the logits; appends what the others did to `tried`.
bool Counts(const Json& config, const std::string& path, const std::vector<float>& logits,
            std::string& tried) {
  for (const char* value : ValuesFor(path)) {
    const Outcome outcome = Run(With(config, path, value));
    if (outcome.status.ok() && Differ(outcome.logits, logits)) return true;
    tried += std::string("\n  ") + value + ": " +
             (outcome.status.ok() ? "changes nothing" : outcome.status.ToString());
  }
  return false;
}

void ExpectOneValueAtMost(const Json& config, const std::string& path,
                          const std::vector<float>& logits) {
  int accepted = 0;
  Values values = kAnyField;
  values.push_back("\"?\"");
  for (const char* value : values) {
    const Outcome outcome = Run(With(config, path, value));
    if (outcome.status.ok()) {
      ++accepted;
      EXPECT_FALSE(Differ(outcome.logits, logits)) << path << " is not fixed: it may be " << value;
    } else {
      const std::string message = outcome.status.ToString();
      EXPECT_NE(message.find(path + ": "), std::string::npos) << path << " is not in: " << message;
    }
  }
  EXPECT_LE(accepted, 1) << path;
}

}  // namespace

std::string Config(const std::string& architecture, const std::string& own) {
  const Json patch = Json::parse("{" + own + "}");
  Json config = {{"architectures", {architecture}}};
  if (!patch.contains("vocab_size") && !patch.contains("text_config")) {
    config.merge_patch(Json::parse(R"({"hidden_act": "silu", "vocab_size": 50, "hidden_size": 24,
        "intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 256})"));
  }
  config.merge_patch(patch);
  return config.dump();
}

std::string ErrorOf(const std::string& config_json) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const auto model = LoadModel(MakeRandomCheckpoint(config_json), *ops);
  return model.ok() ? "" : model.status().ToString();
}

std::vector<float> LastLogits(const std::string& config_json, const char* optional_tensor,
                              const LoadOptions& options) {
  Outcome outcome = Run(config_json, optional_tensor, options);
  CHECK_MSG(outcome.status.ok(), outcome.status.ToString());
  return std::move(outcome.logits);
}

void ExpectDifferent(const std::string& base_json, const std::string& mutant_json,
                     const std::string& what) {
  EXPECT_TRUE(Differ(LastLogits(base_json), LastLogits(mutant_json))) << what << " has no effect";
}

void ExpectEveryFieldCounts(const std::vector<std::string>& configs,
                            const std::set<std::string>& without_effect) {
  std::set<std::string> counting;
  std::map<std::string, std::string> tried;
  for (const std::string& text : configs) {
    const Json config = Json::parse(text);
    const Outcome base = Run(text);
    ASSERT_TRUE(base.status.ok()) << base.status.ToString();
    for (const auto& [path, use] : base.uses) {
      if (use == Use::kIgnored || without_effect.contains(LastName(path))) continue;
      if (use == Use::kFixed) {
        ExpectOneValueAtMost(config, path, base.logits);
      } else if (!counting.contains(path) && Counts(config, path, base.logits, tried[path])) {
        counting.insert(path);
      }
    }
  }
  for (const auto& [path, outcomes] : tried) {
    EXPECT_TRUE(counting.contains(path)) << path << " has no effect. Tried:" << outcomes;
  }
}

}  // namespace tokamak::testing
