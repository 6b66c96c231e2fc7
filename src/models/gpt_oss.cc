// gpt-oss: MoE layers with biases, windows in every other layer, and for each head a score without
// a value ("sink"). The released checkpoints have MXFP4 experts. Model card: arXiv:2508.10925.
// Reference: transformers, models/gpt_oss.
#include "models/families.h"
#include "models/fields.h"

namespace tokamak {
namespace {

void ParseGptOssExperts(ConfigReader& reader, DecoderConfig& c) {
  ParseExperts(reader, c, "num_local_experts", nullptr);
  reader.Expect("hidden_act", "silu");
  c.moe.activation = Activation::kClampedSwiglu;
  c.moe.swiglu_limit = static_cast<float>(reader.NumberOr("swiglu_limit", 7));
  c.moe.swiglu_alpha = static_cast<float>(reader.NumberOr("swiglu_alpha", 1.702));
  c.moe.router.score = RouterConfig::Score::kChosenSoftmax;
  c.moe.router_bias = c.moe.expert_bias = true;
  c.moe.storage = nn::ExpertStorage::kFused;
  c.moe.names.router = "router";
}

}  // namespace

Result<DecoderConfig> ParseGptOss(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader, {.rope = {.theta = 150000}, .attention_bias = true});
  if (!reader.Has("head_dim")) reader.Fail("head_dim", "is missing; this architecture needs it");
  if (!reader.Has("rope_scaling") && !reader.Has("rope_parameters")) {
    reader.Fail("rope_scaling", "is missing; this architecture needs it");
  }
  c.layer = LlamaLayer({.sinks = true});
  ParseGptOssExperts(reader, c);
  ParseSlidingLayers(reader, c, ParseWindow(reader, 128), [](int32_t i) { return i % 2 == 0; });
  if (reader.Has("quantization_config")) {
    ConfigReader quantization = reader.Object("quantization_config");
    quantization.Expect("quant_method", "mxfp4");
    quantization.Ignore({"modules_to_not_convert"});  // the tensors' types already tell
  }
  // Other names for num_experts_per_tok and original_max_position_embeddings.
  reader.ExpectOrAbsent("experts_per_token", c.moe.router.top_k);
  if (c.ropes.front().original_max_positions > 0) {
    reader.ExpectOrAbsent("initial_context_length", c.ropes.front().original_max_positions);
  } else {
    reader.Ignore({"initial_context_length"});
  }
  return reader.Finish(c);
}

}  // namespace tokamak
