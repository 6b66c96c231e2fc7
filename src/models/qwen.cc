// Qwen2, Qwen2.5 and the MoE models of Qwen1.5 and Qwen2: Llama with biases on queries, keys and
// values. Qwen3 and its MoE models: Llama with norms on the heads of queries and keys. Reports:
// arXiv:2407.10671, arXiv:2505.09388. Reference: transformers, models/qwen2, qwen2_moe, qwen3 and
// qwen3_moe.
#include <algorithm>
#include <vector>

#include "models/families.h"
#include "models/fields.h"

namespace tokamak {
namespace {

DecoderConfig ParseQwen2Decoder(ConfigReader& reader, bool qkv_bias,
                                const nn::RopeDefaults& rope = {}) {
  DecoderConfig c = ParseDecoder(
      reader, {.rope = rope, .attention_bias = qkv_bias, .attention_bias_is_fixed = true});
  c.attention.output_bias = false;
  return c;
}

DecoderConfig ParseQwen3Decoder(ConfigReader& reader, const nn::RopeDefaults& rope = {}) {
  DecoderConfig c = ParseDecoder(reader, {.rope = rope});
  c.layer = LlamaLayer({.qk_norm = c.norm});
  return c;
}

// 0, which means none, unless use_sliding_window is set.
int32_t ParseQwenWindow(ConfigReader& reader) {
  const int32_t window = reader.IntOr("sliding_window", 4096, NonNegative());
  return reader.BoolOr("use_sliding_window", false) ? window : 0;
}

int32_t ParseMaxWindowLayers(ConfigReader& reader) {
  return reader.IntOr("max_window_layers", 28, NonNegative(10000));
}

// Without layer_types, layers from max_window_layers on have the window.
void ParseQwenSlidingLayers(ConfigReader& reader, DecoderConfig& c) {
  const int32_t first = ParseMaxWindowLayers(reader);
  ParseSlidingLayers(reader, c, ParseQwenWindow(reader), [=](int32_t i) { return i >= first; });
}

void ParseQwenExperts(ConfigReader& reader, DecoderConfig& c) {
  // transformers writes the first name since version 5.
  ParseExperts(reader, c, reader.Has("num_local_experts") ? "num_local_experts" : "num_experts",
               "moe_intermediate_size");
  const int32_t step = reader.IntOr("decoder_sparse_step", 1);
  std::vector<int32_t> dense;
  if (reader.Has("mlp_only_layers")) dense = reader.Ints("mlp_only_layers", NonNegative());
  SetExperts(c, [&](int32_t i) {
    return std::find(dense.begin(), dense.end(), i) == dense.end() && (i + 1) % step == 0;
  });
}

}  // namespace

Result<DecoderConfig> ParseQwen2(ConfigReader reader) {
  DecoderConfig c = ParseQwen2Decoder(reader, true);
  ParseQwenSlidingLayers(reader, c);
  return reader.Finish(c);
}

DecoderConfig ParseQwen2VlText(ConfigReader& reader) {
  // The defaults of the reference's class.
  reader.SetDefault("vocab_size", 152064);
  reader.SetDefault("hidden_size", 8192);
  reader.SetDefault("intermediate_size", 29568);
  reader.SetDefault("num_hidden_layers", 80);
  reader.SetDefault("num_attention_heads", 64);
  reader.SetDefault("num_key_value_heads", 8);
  reader.SetDefault("hidden_act", "silu");
  reader.SetDefault("max_position_embeddings", 32768);
  reader.SetDefault("rms_norm_eps", 1e-5);
  reader.SetDefault("max_window_layers", 80);
  DecoderConfig c = ParseQwen2Decoder(reader, true, {.theta = 1e6, .sections = {16, 24, 24}});
  ParseQwenSlidingLayers(reader, c);
  return c;
}

Result<DecoderConfig> ParseQwen2Moe(ConfigReader reader) {
  DecoderConfig c = ParseQwen2Decoder(reader, reader.BoolOr("qkv_bias", true));
  const int32_t end = ParseMaxWindowLayers(reader);
  ParseSlidingLayers(reader, c, ParseQwenWindow(reader),
                     [=](int32_t i) { return i % 2 == 0 && i < end; });
  c.moe.shared_intermediate_size =
      reader.Int("shared_expert_intermediate_size", kIntermediateSizes);
  c.moe.shared_gate = true;
  c.moe.router.normalize = reader.BoolOr("norm_topk_prob", false);
  ParseQwenExperts(reader, c);
  return reader.Finish(c);
}

Result<DecoderConfig> ParseQwen3(ConfigReader reader) {
  DecoderConfig c = ParseQwen3Decoder(reader);
  ParseQwenSlidingLayers(reader, c);
  return reader.Finish(c);
}

DecoderConfig ParseQwen3VlText(ConfigReader& reader, bool experts) {
  // The defaults of the reference's classes.
  const int32_t heads = experts ? 16 : 32;
  reader.SetDefault("vocab_size", 151936);
  reader.SetDefault("hidden_size", experts ? 2048 : 4096);
  reader.SetDefault("intermediate_size", experts ? 5632 : 22016);
  reader.SetDefault("num_hidden_layers", experts ? 24 : 32);
  reader.SetDefault("num_attention_heads", heads);
  reader.SetDefault("num_key_value_heads", heads);
  if (!experts) reader.SetDefault("head_dim", 128);
  reader.SetDefault("hidden_act", "silu");
  reader.SetDefault("max_position_embeddings", 128000);
  reader.SetDefault("rms_norm_eps", 1e-6);
  DecoderConfig c = ParseQwen3Decoder(
      reader, {.theta = 5e5, .sections = {24, 20, 20}, .sections_interleaved = true});
  if (!experts) return c;
  reader.SetDefault("moe_intermediate_size", 1408);
  reader.SetDefault("num_experts_per_tok", 4);
  if (!reader.Has("num_local_experts")) reader.SetDefault("num_experts", 60);
  // The reference does not read these fields, and computes as if they had these values.
  reader.ExpectOrAbsent("norm_topk_prob", true);
  reader.ExpectOrAbsent("sliding_window", JsonValue());
  ParseQwenExperts(reader, c);
  c.moe.router.normalize = true;
  c.moe.storage = nn::ExpertStorage::kFusedHalves;
  return c;
}

int32_t ParseQwenImageToken(ConfigReader& outer, const DecoderConfig& text) {
  // The chat template writes them.
  outer.Ignore(
      {"video_token_id", "vision_end_token_id", "vision_start_token_id", "vision_token_id"});
  return outer.IntOr("image_token_id", 151655, NonNegative(text.vocab_size - 1));
}

Result<DecoderConfig> ParseQwen3Moe(ConfigReader reader) {
  DecoderConfig c = ParseQwen3Decoder(reader);
  SetWindow(c, ParseQwenWindow(reader));
  reader.Ignore({"max_window_layers"});
  c.moe.router.normalize = reader.BoolOr("norm_topk_prob", false);
  ParseQwenExperts(reader, c);
  return reader.Finish(c);
}

}  // namespace tokamak
