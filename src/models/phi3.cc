// Phi-3 and Phi-4: Llama with merged projections, and LongRoPE in the long variants. Report:
// arXiv:2404.14219. Reference: transformers, models/phi3.
#include "models/families.h"
#include "models/fields.h"

namespace tokamak {

Result<DecoderConfig> ParsePhi3(ConfigReader reader) {
  DecoderConfig c =
      ParseDecoder(reader, {.rope = {.partial_rotary_factor = 1}, .attention_bias_is_fixed = true});
  if (c.ropes.front().scaling != nn::RopeScaling::kNone &&
      c.ropes.front().scaling != nn::RopeScaling::kLongRope) {
    // Early files say "yarn" and mean LongRoPE; no Phi model was trained with other scalings.
    reader.Fail("rope_scaling", "this family supports only \"longrope\"");
  }
  SetWindow(c, reader.IntOr("sliding_window", 0));
  c.mlp.merged = true;
  c.layer = LlamaLayer({.names = {.qkv = "qkv_proj"}});
  reader.Ignore({"original_max_position_embeddings"});  // LongRoPE's; others may have it too
  return reader.Finish(c);
}

}  // namespace tokamak
