// gpt-oss: MoE layers with biases, windows in every other layer, and for each head a score without
// a value ("sink"). The released checkpoints have MXFP4 experts. Model card: arXiv:2508.10925.
// Reference: transformers, models/gpt_oss.
#include <utility>
#include <vector>

#include "models/families.h"
#include "models/layer_types.h"

namespace tokamak {
namespace {

nn::MoeShape ParseExperts(ConfigReader& reader, const nn::MlpShape& expert) {
  nn::MoeShape moe;
  moe.hidden_size = expert.hidden_size;
  moe.intermediate_size = expert.intermediate_size;
  reader.Expect("hidden_act", "silu");
  moe.activation = Activation::kClampedSwiglu;
  moe.swiglu_limit = static_cast<float>(reader.NumberOr("swiglu_limit", 7));
  moe.swiglu_alpha = static_cast<float>(reader.NumberOr("swiglu_alpha", 1.702));
  moe.router.score = RouterConfig::Score::kChosenSoftmax;
  moe.router.num_experts = reader.Int("num_local_experts", Positive(1024));
  moe.router.top_k = reader.Int("num_experts_per_tok", Positive(moe.router.num_experts));
  moe.router_bias = moe.expert_bias = true;
  moe.storage = nn::ExpertStorage::kFused;
  moe.names.router = "router";
  return moe;
}

}  // namespace

Result<DecoderConfig> ParseGptOss(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader, {.rope = {.theta = 150000}, .attention_bias = true});
  if (!reader.Has("head_dim")) reader.Fail("head_dim", "is missing; this architecture needs it");
  if (!reader.Has("rope_scaling") && !reader.Has("rope_parameters")) {
    reader.Fail("rope_scaling", "is missing; this architecture needs it");
  }
  c.layer = LlamaLayer({.sinks = true});
  c.moe = ParseExperts(reader, c.mlp);
  std::vector<bool> sliding(c.layers.size());
  for (size_t i = 0; i < sliding.size(); ++i) {
    c.layers[i].experts = true;
    sliding[i] = i % 2 == 0;
  }
  const bool none = reader.IsNull("sliding_window");
  const int64_t window = reader.IntOr("sliding_window", 128);
  SetWindow(c, ParseSlidingLayers(reader, std::move(sliding)),
            none ? 0 : static_cast<int32_t>(window));
  if (reader.Has("quantization_config")) {
    ConfigReader quantization = reader.Object("quantization_config");
    quantization.Expect("quant_method", "mxfp4");
    quantization.Ignore({"modules_to_not_convert"});  // the tensors' types already tell
  }
  reader.Ignore({"output_router_logits", "router_aux_loss_coef"});  // for training only
  // Other names for num_experts_per_tok and original_max_position_embeddings.
  reader.ExpectOrAbsent("experts_per_token", int64_t{c.moe.router.top_k});
  if (c.ropes.front().original_max_positions > 0) {
    reader.ExpectOrAbsent("initial_context_length",
                          int64_t{c.ropes.front().original_max_positions});
  } else {
    reader.Ignore({"initial_context_length"});
  }
  return reader.Finish(c);
}

}  // namespace tokamak
