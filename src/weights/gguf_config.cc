#include "weights/gguf_config.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/printable.h"
#include "weights/gguf_keys.h"

namespace tokamak {
namespace {

bool IsDeepseek(const GgufArchitecture& architecture) {
  return std::string_view(architecture.name) == "deepseek2";
}

void TranslateAttention(GgufKeyReader& keys, JsonValue* config) {
  const JsonValue heads = keys.Int("attention.head_count");
  config->Set("num_attention_heads", heads);
  config->Set("num_key_value_heads", keys.IntOr("attention.head_count_kv", heads));
  if (keys.Has("attention.key_length")) {
    const JsonValue length = keys.Int("attention.key_length");
    if (length.AsInt()) {
      config->Set("head_dim", length);
      keys.ExpectNumber("attention.value_length", static_cast<double>(*length.AsInt()));
    }
  }
}

// llama.cpp runs MLA as multi-query attention over the latents, so new files have a single
// key-value head of the latent's size. Older files have the sizes of a real head instead.
void TranslateLatentAttention(GgufKeyReader& keys, JsonValue* config) {
  const JsonValue heads = keys.Int("attention.head_count");
  const int64_t turned = keys.Size("rope.dimension_count");
  const int64_t rank = keys.Size("attention.kv_lora_rank");
  const bool latents = keys.Has("attention.key_length_mla");
  if (latents) {
    keys.ExpectNumber("attention.head_count_kv", 1);
    keys.ExpectNumber("attention.key_length", static_cast<double>(rank + turned));
    keys.ExpectNumber("attention.value_length", static_cast<double>(rank));
  }
  config->Set("num_attention_heads", heads);
  config->Set("num_key_value_heads",
              latents ? heads : keys.IntOr("attention.head_count_kv", heads));
  config->Set("head_dim", turned);
  config->Set("qk_rope_head_dim", turned);
  config->Set("qk_nope_head_dim",
              keys.Size(latents ? "attention.key_length_mla" : "attention.key_length") - turned);
  config->Set("v_head_dim",
              keys.Int(latents ? "attention.value_length_mla" : "attention.value_length"));
  config->Set("kv_lora_rank", rank);
  config->Set("q_lora_rank", keys.IntOr("attention.q_lora_rank", JsonValue()));
}

// Whether DeepSeek models with this many experts choose groups first: V2, V2.5, V3 and R1 do;
// V2-Lite and Kimi-K2 do not.
bool HadGroups(int64_t num_experts) { return num_experts == 160 || num_experts == 256; }

// For DeepSeek and GLM-4.5. Absent keys mean what they mean to llama.cpp.
void TranslateRoutedExperts(GgufKeyReader& keys, const GgufArchitecture& architecture,
                            JsonValue* config) {
  const bool v2 = std::string_view(architecture.hf_name) == "DeepseekV2ForCausalLM";
  keys.ExpectNumber("expert_gating_func", v2 ? kGgufSoftmaxGate : kGgufSigmoidGate);
  config->Set("n_routed_experts", keys.Int("expert_count"));
  config->Set("moe_intermediate_size", keys.Int("expert_feed_forward_length"));
  config->Set("n_shared_experts", keys.Int("expert_shared_count"));
  config->Set("first_k_dense_replace", keys.IntOr("leading_dense_block_count", 0));
  constexpr const char* kGroups = "expert_group_count";
  const JsonValue groups = keys.IntOr(kGroups, 1);
  if (IsDeepseek(architecture) && !keys.Has(kGroups) && HadGroups(keys.Size("expert_count"))) {
    keys.WarnOfMissing(kGroups,
                       "every token chooses among all experts, as in llama.cpp, and not among "
                       "groups of them as in DeepSeek's implementation, so answers differ. Files "
                       "from old converters lack the key; download a newer file.");
  }
  config->Set("n_group", groups);
  config->Set("topk_group", keys.IntOr("expert_group_used_count", 1));
  config->Set("routed_scaling_factor", keys.Has("expert_weights_scale")
                                           ? keys.Number("expert_weights_scale")
                                           : JsonValue(1.0));
  const JsonValue normalize =
      keys.Has("expert_weights_norm") ? keys.Bool("expert_weights_norm") : JsonValue(false);
  if (v2) {  // its reference never normalizes, and it has no MTP layers
    if (groups.AsInt().value_or(1) > 1) config->Set("topk_method", "group_limited_greedy");
    if (normalize.AsBool().value_or(false)) {
      keys.Unsupported("expert_weights_norm", "true",
                       "only false is supported where the router uses a softmax");
    }
    return;
  }
  config->Set("norm_topk_prob", normalize);
  // block_count includes the MTP layers, which only draft tokens.
  const int64_t drafts = keys.Has("nextn_predict_layers") ? keys.Size("nextn_predict_layers") : 0;
  config->Set("num_nextn_predict_layers", drafts);
  config->Set("num_hidden_layers", keys.Size("block_count") - drafts);
}

// Sets what llama.cpp assumes for architectures without such keys: experts in every layer, a
// softmax, and, except for Qwen2-MoE, weights of the chosen experts divided by their sum.
void TranslateExperts(GgufKeyReader& keys, const GgufArchitecture& architecture,
                      JsonValue* config) {
  if (!architecture.has_experts) {
    keys.ExpectNumber("expert_count", 0);
    keys.ExpectNumber("expert_used_count", 0);
    return;
  }
  config->Set("num_experts_per_tok", keys.Int("expert_used_count"));
  const std::string_view family = architecture.hf_name;
  if (IsDeepseek(architecture) || family == "Glm4MoeForCausalLM") {
    return TranslateRoutedExperts(keys, architecture, config);
  }
  if (family == "Qwen3MoeForCausalLM" || family == "Qwen2MoeForCausalLM") {
    config->Set("num_experts", keys.Int("expert_count"));
    config->Set("moe_intermediate_size", keys.Int("expert_feed_forward_length"));
    config->Set("norm_topk_prob", family == "Qwen3MoeForCausalLM");
    if (family == "Qwen2MoeForCausalLM") {
      config->Set("shared_expert_intermediate_size", keys.Int("expert_shared_feed_forward_length"));
    }
    return;
  }
  config->Set("num_local_experts", keys.Int("expert_count"));
  if (keys.Has("expert_feed_forward_length")) {
    config->Set("intermediate_size", keys.Int("expert_feed_forward_length"));
  }
}

// The elements of a list, none after an error.
JsonValue::Array Elements(const JsonValue& list) {
  return list.AsArray() != nullptr ? *list.AsArray() : JsonValue::Array();
}

// Qwen3.5: which layers have linear attention, its sizes, and RoPE's sections.
void TranslateDeltaNets(GgufKeyReader& keys, JsonValue* config) {
  const int64_t heads = keys.Size("ssm.time_step_rank"), inner = keys.Size("ssm.inner_size");
  if (heads <= 0 || inner % heads != 0) {
    keys.Unsupported("ssm.inner_size", std::to_string(inner),
                     fmt::format("it must be a multiple of ssm.time_step_rank, {}", heads));
    return;
  }
  config->Set("linear_num_value_heads", heads);
  config->Set("linear_value_head_dim", inner / heads);
  config->Set("linear_num_key_heads", keys.Int("ssm.group_count"));
  config->Set("linear_key_head_dim", keys.Int("ssm.state_size"));
  config->Set("linear_conv_kernel_dim", keys.Int("ssm.conv_kernel"));
  // block_count includes the MTP layers, which only draft tokens.
  const int64_t drafts = keys.Has("nextn_predict_layers") ? keys.Size("nextn_predict_layers") : 0;
  const int64_t layers = keys.Size("block_count") - drafts;
  config->Set("mtp_num_hidden_layers", drafts);
  config->Set("num_hidden_layers", layers);
  config->Set("full_attention_interval", keys.IntOr("full_attention_interval", 4));
  constexpr const char* kLinear = "attention.recurrent_layers";
  if (keys.Has(kLinear)) {
    JsonValue::Array types;
    for (const JsonValue& linear : Elements(keys.Bools(kLinear))) {
      if (static_cast<int64_t>(types.size()) == layers) break;
      types.emplace_back(linear.AsBool().value_or(false) ? "linear_attention" : "full_attention");
    }
    config->Set("layer_types", JsonValue(std::move(types)));
  }
  JsonValue::Array three;
  for (const JsonValue& section : Elements(keys.Ints("rope.dimension_sections"))) {
    if (section.AsInt().value_or(0) > 0) three.push_back(section);  // the fourth is 0
  }
  const JsonValue* const scaling = config->Find("rope_scaling");
  JsonValue rope = scaling != nullptr ? *scaling : JsonValue();
  if (scaling == nullptr) rope.Set("rope_type", "default");
  rope.Set("mrope_section", JsonValue(std::move(three)));
  config->Set("rope_scaling", std::move(rope));
}

// Fields that only these families have. llama.cpp hard-codes the rest.
void TranslateFamily(GgufKeyReader& keys, const GgufArchitecture& architecture, JsonValue* config) {
  const std::string_view family = architecture.hf_name;
  if (family == "GptOssForCausalLM") {
    config->Set("sliding_window", keys.Int("attention.sliding_window"));
    // Only gpt-oss does not round the ends of the YaRN ramp, and no key says so.
    if (const JsonValue* rope = config->Find("rope_scaling")) {
      JsonValue exact = *rope;
      exact.Set("truncate", false);
      config->Set("rope_scaling", std::move(exact));
    }
  }
  constexpr const char* kTemperature = "rope.scaling.yarn_log_multiplier";
  const JsonValue* rope = config->Find("rope_scaling");
  if (IsDeepseek(architecture) && rope != nullptr && keys.Has(kTemperature)) {
    // The key holds 0.1 · mscale_all_dim. No key holds mscale, which equals mscale_all_dim
    // in all published models.
    constexpr float kStored = 0.1f;
    const auto stored = static_cast<float>(keys.Number(kTemperature).AsDouble().value_or(0));
    JsonValue scaling = *rope;
    for (const char* field : {"mscale", "mscale_all_dim"}) {
      scaling.Set(field, static_cast<double>(stored / kStored));
    }
    config->Set("rope_scaling", std::move(scaling));
  }
  if (family == "Qwen3_5ForCausalLM") TranslateDeltaNets(keys, config);
  if (family == "Phi3ForCausalLM" && keys.Has("attention.sliding_window")) {
    const JsonValue window = keys.Int("attention.sliding_window");
    if (window.AsInt().value_or(0) > 0) config->Set("sliding_window", window);  // 0 means none
  }
  if (family == "Glm4ForCausalLM" || family == "Glm4MoeForCausalLM") {
    // These families' defaults differ from the format's.
    if (config->Find("partial_rotary_factor") == nullptr) config->Set("partial_rotary_factor", 1.0);
    const int64_t heads = config->Find("num_attention_heads")->AsInt().value_or(0);
    const int64_t width = config->Find("hidden_size")->AsInt().value_or(0);
    if (config->Find("head_dim") == nullptr && heads > 0) config->Set("head_dim", width / heads);
  }
  if (family == "Glm4MoeForCausalLM") {
    config->Set("use_qk_norm", keys.HasTensor("blk.0.attn_q_norm.weight"));
  }
  const bool gemma2 = family == "Gemma2ForCausalLM";
  if (gemma2 || family == "Gemma3ForCausalLM") {
    config->Set("hidden_act", JsonValue());
    config->Set("hidden_activation", "gelu_pytorch_tanh");
    config->Set("sliding_window", keys.Int("attention.sliding_window"));
    for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (gemma2 || keys.Has(cap)) config->Set(cap, keys.Number(cap));
    }
    if (!gemma2 && keys.Has("rope.freq_base_swa")) {
      config->Set("rope_local_base_freq", keys.Number("rope.freq_base_swa"));
    }
    // 27B models scale scores by hidden_size / heads, the others by the head size.
    const int64_t kLayersOf27B = gemma2 ? 46 : 62;
    const auto value = [config](const char* name) {
      const JsonValue* field = config->Find(name);
      return field != nullptr ? field->AsInt().value_or(0) : 0;
    };
    const int64_t heads = value("num_attention_heads");
    const bool by_width = value("num_hidden_layers") == kLayersOf27B && heads > 0;
    config->Set("query_pre_attn_scalar",
                by_width ? value("hidden_size") / heads : value("head_dim"));
  }
}

// Applies llama.cpp's defaults: base 10000, all dimensions of a head, linear scaling if only a
// factor is given. With `has_factors`, TranslateLongRope reads the rest.
void TranslateRope(GgufKeyReader& keys, bool has_factors, JsonValue* config) {
  config->Set("rope_theta",
              keys.Has("rope.freq_base") ? keys.Number("rope.freq_base") : JsonValue(10000.0));
  if (keys.Has("rope.dimension_count")) {
    const JsonValue rotary = keys.Int("rope.dimension_count");
    const JsonValue* hidden = config->Find("hidden_size");
    const JsonValue* heads = config->Find("num_attention_heads");
    const JsonValue* head_dim = config->Find("head_dim");
    if (rotary.AsInt() && hidden->AsInt() && heads->AsInt() && *heads->AsInt() > 0) {
      const int64_t dim = head_dim ? *head_dim->AsInt() : *hidden->AsInt() / *heads->AsInt();
      if (dim > 0 && *rotary.AsInt() != dim) {
        config->Set("partial_rotary_factor",
                    static_cast<double>(*rotary.AsInt()) / static_cast<double>(dim));
      }
    }
  }
  std::string type = "linear";
  if (keys.Has("rope.scaling.type")) {
    const JsonValue stated = keys.String("rope.scaling.type");
    if (stated.AsString() != nullptr) type = *stated.AsString();
  }
  keys.Ignore("rope.scaling.finetuned");
  const char* factor = keys.Has("rope.scale_linear") ? "rope.scale_linear" : "rope.scaling.factor";
  JsonValue scaling;
  if (type == "linear" && keys.Has(factor)) {
    scaling.Set("rope_type", "linear");
    scaling.Set("factor", keys.Number(factor));
  } else if (type == "yarn") {
    scaling.Set("rope_type", "yarn");
    scaling.Set("factor", keys.Number("rope.scaling.factor"));
    scaling.Set("original_max_position_embeddings",
                keys.Int("rope.scaling.original_context_length"));
    if (keys.Has("rope.scaling.yarn_beta_fast")) {
      scaling.Set("beta_fast", keys.Number("rope.scaling.yarn_beta_fast"));
    }
    if (keys.Has("rope.scaling.yarn_beta_slow")) {
      scaling.Set("beta_slow", keys.Number("rope.scaling.yarn_beta_slow"));
    }
    keys.ExpectNumber("rope.scaling.yarn_ext_factor", 1);
    // With a factor of 1, YaRN's own 0.1 · ln(factor) + 1 applies, the reference's default.
    keys.ExpectNumber("rope.scaling.attn_factor", 1);
    keys.ExpectNumber("rope.scaling.yarn_attn_factor", 1);
  } else if (type == "none") {
    keys.Ignore("rope.scaling.factor");
  } else if (type != "linear" && !(type == "longrope" && has_factors)) {
    keys.Unsupported(
        "rope.scaling.type", Quoted(type),
        "supported are none, linear, yarn, and Phi-3's longrope if the file has its factors");
  }
  if (!scaling.is_null()) config->Set("rope_scaling", std::move(scaling));
}

// Reads LongRoPE's factors, which are tensors: one set for short contexts, one for long.
Status TranslateLongRope(const GgufFile& file, GgufKeyReader& keys, JsonValue* config) {
  const StoredTensor* sets[] = {file.FindTensor("rope_factors_short.weight"),
                                file.FindTensor("rope_factors_long.weight")};
  if (keys.Has("rope.scaling.original_context_length")) {
    config->Set("original_max_position_embeddings",
                keys.Int("rope.scaling.original_context_length"));
  }
  if (sets[0] == nullptr || sets[1] == nullptr) return Status();
  JsonValue scaling;
  scaling.Set("rope_type", "longrope");
  if (keys.Has("rope.scaling.attn_factor")) {
    scaling.Set("attention_factor", keys.Number("rope.scaling.attn_factor"));
  }
  for (const StoredTensor* set : sets) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const WeightSource> source, file.Weight(*set));
    constexpr int64_t kMost = 1 << 16;  // dimensions of a head
    if (source->dtype() != DType::kF32 || source->shape().rank() != 1 ||
        source->shape().cols() > kMost) {
      return DataLoss("{}: tensor {} must be an F32 vector of RoPE factors", file.name(),
                      Quoted(set->name));
    }
    std::vector<float> values(static_cast<size_t>(source->shape().cols()));
    RETURN_IF_ERROR(source->ReadRows(0, 1, reinterpret_cast<std::byte*>(values.data())));
    JsonValue::Array factors;
    for (const float value : values) factors.emplace_back(static_cast<double>(value));
    scaling.Set(set == sets[0] ? "short_factor" : "long_factor", JsonValue(std::move(factors)));
  }
  config->Set("rope_scaling", std::move(scaling));
  return Status();
}

Status TranslateVocabulary(const GgufFile& file, GgufKeyReader& keys, JsonValue* config) {
  const StoredTensor* embeddings = file.FindTensor("token_embd.weight");
  if (embeddings == nullptr || embeddings->shape.rank() != 2) {
    return DataLoss("{}: {}; is this a model, or only its vocabulary?", file.name(),
                    embeddings == nullptr ? "there is no tensor \"token_embd.weight\""
                                          : "tensor \"token_embd.weight\" is not a matrix");
  }
  const int64_t vocab_size = embeddings->shape[0];
  if (keys.Has("vocab_size")) {
    const JsonValue stated = keys.Int("vocab_size");
    if (stated.AsInt() && *stated.AsInt() != vocab_size) {
      return DataLoss(
          "{}: metadata \"vocab_size\" is {}, but tensor \"token_embd.weight\" has {} "
          "rows. The file does not match its own metadata; download it again or report "
          "it to its author.",
          file.name(), *stated.AsInt(), vocab_size);
    }
  }
  config->Set("vocab_size", vocab_size);
  config->Set("tie_word_embeddings", file.FindTensor("output.weight") == nullptr);
  return Status();
}

// Fields that every family has.
JsonValue TranslateSizes(GgufKeyReader& keys) {
  JsonValue config;
  config.Set("hidden_size", keys.Int("embedding_length"));
  config.Set("num_hidden_layers", keys.Int("block_count"));
  config.Set("intermediate_size", keys.Int("feed_forward_length"));
  config.Set("max_position_embeddings", keys.Int("context_length"));
  return config;
}

// BERT. The format does not say which GELU; BERT uses the exact one.
Result<JsonValue> TranslateEncoder(const GgufFile& file, GgufKeyReader& keys) {
  JsonValue config = TranslateSizes(keys);
  config.Set("num_attention_heads", keys.Int("attention.head_count"));
  config.Set("layer_norm_eps", keys.Number("attention.layer_norm_epsilon"));
  config.Set("hidden_act", "gelu");
  keys.Ignore("pooling_type");  // weights/embedding_spec.h reads it
  keys.Ignore("attention.causal");
  if (file.metadata().Has("bert.attention.causal")) {
    ASSIGN_OR_RETURN(const bool causal, file.metadata().Bool("bert.attention.causal"));
    if (causal) keys.Unsupported("attention.causal", "true", "only false is supported");
  }
  for (const auto& [tensor, field] : {std::pair("token_embd.weight", "vocab_size"),
                                      std::pair("token_types.weight", "type_vocab_size")}) {
    const StoredTensor* found = file.FindTensor(tensor);
    if (found == nullptr || found->shape.rank() != 2) {
      return DataLoss("{}: there is no matrix {}; is this a model, or only its vocabulary?",
                      file.name(), Quoted(tensor));
    }
    config.Set(field, found->shape[0]);
  }
  RETURN_IF_ERROR(keys.Finish());
  return config;
}

// MPT, whose config.json has its own field names.
Result<JsonValue> TranslateMpt(const GgufFile& file, GgufKeyReader& keys) {
  JsonValue config, attention;
  const int64_t width = keys.Size("embedding_length");
  const int64_t ratio = width > 0 ? keys.Size("feed_forward_length") / width : 0;
  keys.ExpectNumber("feed_forward_length", static_cast<double>(ratio * width));
  const int64_t heads = keys.Size("attention.head_count");
  config.Set("d_model", width);
  config.Set("expansion_ratio", ratio);
  config.Set("n_heads", heads);
  config.Set("n_layers", keys.Int("block_count"));
  config.Set("max_seq_len", keys.Int("context_length"));
  config.Set("layer_norm_epsilon", keys.Number("attention.layer_norm_epsilon"));
  keys.ExpectNumber("attention.head_count_kv", static_cast<double>(heads));
  attention.Set("alibi_bias_max", keys.Number("attention.max_alibi_bias"));
  if (keys.Has("attention.clamp_kqv")) {
    attention.Set("clip_qkv", keys.Number("attention.clamp_kqv"));
  }
  config.Set("attn_config", std::move(attention));
  RETURN_IF_ERROR(TranslateVocabulary(file, keys, &config));
  RETURN_IF_ERROR(keys.Finish());
  return config;
}

}  // namespace

Result<JsonValue> TranslateGgufConfig(const GgufFile& file, const GgufArchitecture& architecture) {
  GgufKeyReader keys(file, architecture.name);
  if (architecture.encoder) return TranslateEncoder(file, keys);
  if (std::string_view(architecture.name) == "mpt") return TranslateMpt(file, keys);
  JsonValue config = TranslateSizes(keys);
  config.Set("rms_norm_eps", keys.Number("attention.layer_norm_rms_epsilon"));
  config.Set("hidden_act", "silu");
  if (IsDeepseek(architecture)) {
    TranslateLatentAttention(keys, &config);
  } else {
    TranslateAttention(keys, &config);
  }
  TranslateExperts(keys, architecture, &config);
  const bool phi3 = std::string_view(architecture.hf_name) == "Phi3ForCausalLM";
  TranslateRope(keys,
                phi3 && file.FindTensor("rope_factors_short.weight") != nullptr &&
                    file.FindTensor("rope_factors_long.weight") != nullptr,
                &config);
  TranslateFamily(keys, architecture, &config);
  const std::string_view name = architecture.name;
  if (name == "qwen2vl" || name == "qwen3vl") {  // gguf_mmproj.cc reads these
    keys.Ignore("rope.dimension_sections");
    keys.Ignore("n_deepstack_layers");
  }
  if (phi3) RETURN_IF_ERROR(TranslateLongRope(file, keys, &config));
  keys.Ignore("tensor_data_layout");
  keys.Ignore("pooling_type");  // weights/embedding_spec.h reads it
  RETURN_IF_ERROR(TranslateVocabulary(file, keys, &config));
  config.Set("attention_bias", keys.HasTensor("blk.0.attn_q.bias"));
  if (keys.HasTensor("blk.0.ffn_gate.bias")) config.Set("mlp_bias", true);
  RETURN_IF_ERROR(keys.Finish());
  return config;
}

}  // namespace tokamak
