#include "models/fields.h"

#include <fmt/core.h>

#include <cmath>
#include <string>

namespace tokamak {
namespace {

Activation ParseActivation(ConfigReader& reader, const DecoderDefaults& defaults) {
  const char* const field = defaults.activation;
  const std::string name = defaults.absent_activation != nullptr
                               ? reader.StringOr(field, defaults.absent_activation)
                               : reader.String(field);
  if (name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name != "silu") reader.Fail(field, "\"" + name + "\" is not supported");
  return Activation::kSilu;
}

nn::AttentionConfig ParseAttention(ConfigReader& reader, const DecoderDefaults& defaults) {
  nn::AttentionConfig attention;
  attention.hidden_size = reader.Int("hidden_size", kHiddenSizes);
  attention.num_heads = reader.Int("num_attention_heads", kHeadCounts);
  attention.num_kv_heads = reader.IntOr("num_key_value_heads", attention.num_heads, kHeadCounts);
  if (attention.num_heads % attention.num_kv_heads != 0) {
    reader.Fail("num_key_value_heads", "does not divide num_attention_heads");
  }
  if (!reader.Has(defaults.head_dim) && attention.hidden_size % attention.num_heads != 0) {
    reader.Fail("num_attention_heads",
                fmt::format("does not divide hidden_size, and there is no {}", defaults.head_dim));
  }
  attention.head_dim =
      reader.IntOr(defaults.head_dim, attention.hidden_size / attention.num_heads, kHeadDims);
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(attention.head_dim)));
  if (defaults.attention_bias_is_fixed) {
    reader.ExpectOrAbsent("attention_bias", defaults.attention_bias);
    attention.qkv_bias = defaults.attention_bias;
  } else {
    attention.qkv_bias = reader.BoolOr("attention_bias", defaults.attention_bias);
  }
  attention.output_bias = attention.qkv_bias;
  return attention;
}

}  // namespace

DecoderConfig ParseDecoder(ConfigReader& reader, const DecoderDefaults& defaults) {
  DecoderConfig c;
  c.vocab_size = reader.Int("vocab_size", kVocabSizes);
  const int64_t num_layers = reader.Int("num_hidden_layers", Positive(10000));
  c.norm.eps = static_cast<float>(reader.Number("rms_norm_eps", {0, 1}));
  c.tie_word_embeddings = reader.BoolOr("tie_word_embeddings", defaults.tie_word_embeddings);

  c.attention = ParseAttention(reader, defaults);
  c.hidden_size = c.attention.hidden_size;
  c.mlp = {.hidden_size = c.hidden_size,
           .intermediate_size = reader.Int("intermediate_size", kIntermediateSizes),
           .activation = ParseActivation(reader, defaults)};
  c.layers.resize(static_cast<size_t>(num_layers));
  if (defaults.rope_apart) return c;
  c.ropes = {nn::ParseRope(reader, c.attention.head_dim, reader.Int("max_position_embeddings"),
                           defaults.rope)};
  return c;
}

nn::AttentionConfig ParseMultiHeadAttention(ConfigReader& reader, const char* hidden_size,
                                            const char* num_heads) {
  nn::AttentionConfig attention;
  attention.hidden_size = reader.Int(hidden_size, kHiddenSizes);
  attention.num_heads = reader.Int(num_heads, kHeadCounts);
  attention.num_kv_heads = attention.num_heads;
  if (attention.hidden_size % attention.num_heads != 0) {
    reader.Fail(num_heads, fmt::format("does not divide {}", hidden_size));
  }
  attention.head_dim = attention.hidden_size / attention.num_heads;
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(attention.head_dim)));
  return attention;
}

int32_t ParseWindow(ConfigReader& reader, int32_t absent) {
  return reader.IsNull("sliding_window") ? 0 : reader.IntOr("sliding_window", absent);
}

std::vector<bool> ParseSlidingLayers(ConfigReader& reader, DecoderConfig& c, int32_t window,
                                     FunctionRef<bool(int32_t i)> absent) {
  constexpr const char* kName = "layer_types";
  const bool listed = reader.Has(kName);
  const std::vector<std::string> types =
      listed ? reader.Strings(kName) : std::vector<std::string>(c.layers.size());
  std::vector<bool> sliding(c.layers.size());
  if (types.size() != sliding.size()) {
    reader.Fail(kName, "must name a type for each layer");
    return sliding;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    sliding[i] = listed ? types[i] == "sliding_attention" : absent(static_cast<int32_t>(i));
    if (listed && !sliding[i] && types[i] != "full_attention") {
      reader.Fail(kName, "\"" + types[i] + "\" is not supported");
    }
    c.layers[i].window = sliding[i] ? window : 0;
  }
  return sliding;
}

void SetWindow(DecoderConfig& c, int32_t window) {
  for (DecoderLayer& layer : c.layers) layer.window = window;
}

void ParseExperts(ConfigReader& reader, DecoderConfig& c, const char* count, const char* size) {
  nn::MoeShape& moe = c.moe;
  moe.hidden_size = c.hidden_size;
  moe.intermediate_size =
      size != nullptr ? reader.Int(size, kIntermediateSizes) : c.mlp.intermediate_size;
  moe.activation = c.mlp.activation;
  moe.router.num_experts = reader.Int(count, Positive(1024));
  moe.router.top_k = reader.Int("num_experts_per_tok", Positive(moe.router.num_experts));
  for (DecoderLayer& layer : c.layers) layer.experts = true;
  reader.Ignore({"output_router_logits", "router_aux_loss_coef"});  // for training only
}

void SetExperts(DecoderConfig& c, FunctionRef<bool(int32_t i)> has_experts) {
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i].experts = has_experts(static_cast<int32_t>(i));
  }
}

void ParseExpertGroups(ConfigReader& reader, int32_t num_groups, int32_t top_groups,
                       RouterConfig& router) {
  router.num_groups = reader.IntOr("n_group", num_groups, Positive(router.num_experts));
  router.top_groups = reader.IntOr("topk_group", top_groups, Positive(router.num_groups));
  const int32_t group_size = router.num_experts / router.num_groups;
  if (router.num_experts % router.num_groups != 0) {
    reader.Fail("n_group", "does not divide n_routed_experts");
  } else if (router.group_score == RouterConfig::GroupScore::kTwoBest && group_size < 2) {
    reader.Fail(
        "n_group",
        "makes groups of one expert, but the score of a group is the sum of its two best experts");
  } else if (router.top_k > group_size * router.top_groups) {
    reader.Fail("topk_group", "leaves fewer experts than num_experts_per_tok");
  }
}

void ParseSigmoidRouter(ConfigReader& reader, double scale, int32_t num_groups, int32_t top_groups,
                        nn::MoeShape& moe) {
  moe.router.score = RouterConfig::Score::kSigmoid;
  moe.router.group_score = RouterConfig::GroupScore::kTwoBest;
  moe.router.normalize = reader.BoolOr("norm_topk_prob", true);
  moe.router.scale = static_cast<float>(reader.NumberOr("routed_scaling_factor", scale));
  moe.score_correction_bias = true;
  ParseExpertGroups(reader, num_groups, top_groups, moe.router);
}

ConfigReader OpenTextConfig(ConfigReader& outer, const std::string& model_type) {
  ConfigReader text = outer.Part("text_config");
  text.ExpectOrAbsent("model_type", model_type);
  return text;
}

void ParseOuterTie(ConfigReader& outer, DecoderConfig& c) {
  c.tied_unless_stored = outer.BoolOr("tie_word_embeddings", true);
  if (!c.tied_unless_stored) c.tie_word_embeddings = false;
}

void ParseEitherTie(ConfigReader& outer, DecoderConfig& c) {
  const bool tied = outer.BoolOr("tie_word_embeddings", false);
  c.tie_word_embeddings = c.tie_word_embeddings || tied;
  c.tied_unless_stored = c.tie_word_embeddings;
}

}  // namespace tokamak
