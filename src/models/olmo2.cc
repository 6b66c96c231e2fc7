// OLMo 2: post-norms, and norms over all heads of queries and keys together. Report:
// arXiv:2501.00656. Reference: transformers, models/olmo2.
#include "models/decoder.h"
#include "models/families.h"

namespace tokamak {

Result<DecoderConfig> ParseOlmo2(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader);
  c.architecture = "Olmo2ForCausalLM";
  c.names = kPostNormNames;
  for (DecoderLayer& layer : c.layers) {
    layer.attention.qk_norm_eps = c.norm.eps;
    layer.attention.whole_qk_norm = true;
  }
  return reader.Finish(c);
}

}  // namespace tokamak
