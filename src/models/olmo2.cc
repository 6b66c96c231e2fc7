// OLMo 2: post-norms, and norms over all heads of queries and keys together. Report:
// arXiv:2501.00656. Reference: transformers, models/olmo2.
#include "models/families.h"
#include "models/fields.h"

namespace tokamak {

MakeLayer Olmo2Layer(const nn::AttentionExtras& extras) {
  return [extras](const LayerBuilder& b) {
    return PostNorm{b.Attention("self_attn", extras), b.Norm("post_attention_layernorm"),
                    b.FeedForward("mlp"), b.Norm("post_feedforward_layernorm")};
  };
}

Result<DecoderConfig> ParseOlmo2(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader);
  c.layer = Olmo2Layer({.qk_norm = c.norm, .whole_qk_norm = true});
  return reader.Finish(c);
}

}  // namespace tokamak
