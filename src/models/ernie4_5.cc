// ERNIE 4.5, dense: Llama with interleaved RoPE and one switch for all biases. Report:
// https://yiyan.baidu.com/blog/publication. Reference: transformers, models/ernie4_5.
#include "models/families.h"
#include "models/fields.h"

namespace tokamak {

Result<DecoderConfig> ParseErnie45(ConfigReader reader) {
  // If these are absent, the reference takes the sizes of the 0.3B, and the checkpoints' own code
  // those that follow from num_attention_heads. So they must be there.
  reader.Int("head_dim", kHeadDims);
  reader.Int("num_key_value_heads", kHeadCounts);
  DecoderConfig c = ParseDecoder(
      reader,
      {.rope = {.theta = 500000}, .tie_word_embeddings = true, .attention_bias_is_fixed = true});
  c.ropes.front().style = RopeStyle::kInterleaved;
  const bool bias = reader.BoolOr("use_bias", false);
  c.attention.qkv_bias = bias;
  c.attention.output_bias = bias;
  c.mlp.bias = bias;
  // The reference ignores both. The checkpoints' own code divides positions by the first; if there
  // are biases, the second adds one to the logits.
  reader.ExpectOrAbsent("compression_ratio", 1.0);
  if (bias) {
    reader.ExpectOrAbsent("weight_share_add_bias", false);
  } else {
    reader.Ignore({"weight_share_add_bias"});
  }
  return reader.Finish(c);
}

}  // namespace tokamak
