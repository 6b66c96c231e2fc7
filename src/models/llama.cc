// Llama, the decoder from which most open models derive. Papers: arXiv:2302.13971,
// arXiv:2307.09288, arXiv:2407.21783. Reference: transformers, models/llama.
#include "models/decoder.h"
#include "models/families.h"

namespace tokamak {

Result<DecoderConfig> ParseLlama(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader);
  c.architecture = "LlamaForCausalLM";
  const bool mlp_bias = reader.BoolOr("mlp_bias", false);
  for (DecoderLayer& layer : c.layers) std::get<nn::MlpShape>(layer.feed_forward).bias = mlp_bias;
  reader.ExpectOrAbsent("rope_interleaved", false);
  reader.Ignore({"pretraining_tp"});  // how the authors split products; results are the same
  return reader.Finish(c);
}

}  // namespace tokamak
