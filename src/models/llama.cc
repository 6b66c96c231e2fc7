// Llama, the decoder from which most open models derive. Papers: arXiv:2302.13971,
// arXiv:2307.09288, arXiv:2407.21783. Reference: transformers, models/llama.
#include "models/families.h"
#include "models/fields.h"

namespace tokamak {

MakeLayer LlamaLayer(const nn::AttentionExtras& extras, const char* feed_forward) {
  return [=](const LayerBuilder& b) {
    return PreNorm{b.Norm("input_layernorm"), b.Attention("self_attn", extras),
                   b.Norm("post_attention_layernorm"), b.FeedForward(feed_forward)};
  };
}

Result<DecoderConfig> ParseLlama(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader);
  c.mlp.bias = reader.BoolOr("mlp_bias", false);
  reader.ExpectOrAbsent("rope_interleaved", false);
  reader.Ignore({"pretraining_tp"});  // how the authors split products; results are the same
  return reader.Finish(c);
}

}  // namespace tokamak
