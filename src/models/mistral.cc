// Mistral (Llama with a sliding window), Mixtral (with experts), and the text model of the
// multimodal Mistral 3. Papers: arXiv:2310.06825, arXiv:2401.04088. Reference: transformers,
// models/mistral, mixtral and mistral3.
#include "base/error.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/multimodal.h"

namespace tokamak {
namespace {

void SetWindow(DecoderConfig& c, int64_t window) {
  for (DecoderLayer& layer : c.layers) layer.window = static_cast<int32_t>(window);
}

}  // namespace

Result<DecoderConfig> ParseMistral(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader, {.attention_bias_is_fixed = true});
  // Later models have null, which means no window. If the field is absent, the first model's
  // applies.
  const bool none = reader.IsNull("sliding_window");
  const int64_t window = reader.IntOr("sliding_window", 4096);
  SetWindow(c, none ? 0 : window);
  return reader.Finish(c);
}

Result<DecoderConfig> ParseMistralMultimodal(ConfigReader reader) {
  ConfigReader text = OpenTextConfig(reader, "mistral");
  ASSIGN_OR_RETURN(DecoderConfig c, ParseMistral(text));
  ParseOuterTie(reader, c);
  // For images.
  reader.Ignore({"vision_config", "image_token_index", "multimodal_projector_bias",
                 "projector_hidden_act", "spatial_merge_size", "vision_feature_layer"});
  return reader.Finish(c);
}

Result<DecoderConfig> ParseMixtral(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader, {.rope = {.theta = 1e6}, .attention_bias_is_fixed = true});
  if (reader.Has("sliding_window")) SetWindow(c, reader.Int("sliding_window"));
  nn::MoeShape& moe = c.moe;
  moe.hidden_size = c.mlp.hidden_size;
  moe.intermediate_size = c.mlp.intermediate_size;
  moe.activation = c.mlp.activation;
  moe.names = {.gate_proj = "w1", .up_proj = "w3", .down_proj = "w2"};
  moe.router.num_experts = reader.Int("num_local_experts", Positive(1024));
  moe.router.top_k = reader.Int("num_experts_per_tok", Positive(moe.router.num_experts));
  moe.router.normalize = true;
  for (DecoderLayer& layer : c.layers) layer.experts = true;
  c.layer = LlamaLayer({}, "block_sparse_moe");
  // For training only.
  reader.Ignore({"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"});
  return reader.Finish(c);
}

}  // namespace tokamak
