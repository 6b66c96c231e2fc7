// Mistral (Llama with a sliding window) and Mixtral (with experts). Papers: arXiv:2310.06825,
// arXiv:2401.04088. Reference: transformers, models/mistral and mixtral.
#include "models/families.h"
#include "models/fields.h"

namespace tokamak {

Result<DecoderConfig> ParseMistral(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader, {.attention_bias_is_fixed = true});
  // Later models have null. If the field is absent, the first model's window applies.
  SetWindow(c, ParseWindow(reader, 4096));
  return reader.Finish(c);
}

Result<DecoderConfig> ParseMixtral(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader, {.rope = {.theta = 1e6}, .attention_bias_is_fixed = true});
  SetWindow(c, reader.IntOr("sliding_window", 0));
  ParseExperts(reader, c, "num_local_experts", nullptr);
  c.moe.names = {.gate_proj = "w1", .up_proj = "w3", .down_proj = "w2"};
  c.moe.router.normalize = true;
  c.layer = LlamaLayer({}, "block_sparse_moe");
  reader.Ignore({"router_jitter_noise"});  // for training only
  return reader.Finish(c);
}

}  // namespace tokamak
