// Llama, the decoder that most open models start from. Papers: arXiv:2302.13971, arXiv:2307.09288,
// arXiv:2407.21783. Reference: transformers, models/llama.
#include <utility>

#include "base/error.h"
#include "models/decoder.h"

namespace tokamak {
namespace {

Result<DecoderConfig> ParseConfig(ConfigReader reader) {
  DecoderConfig c = ParseDecoder(reader);
  c.architecture = "LlamaForCausalLM";
  const bool mlp_bias = reader.BoolOr("mlp_bias", false);
  for (DecoderLayer& layer : c.layers) std::get<nn::MlpShape>(layer.feed_forward).bias = mlp_bias;
  reader.ExpectOrAbsent("rope_interleaved", false);
  reader.Ignore({"pretraining_tp"});  // how the authors split their products; the sums are the same
  return reader.Finish(c);
}

}  // namespace

Result<std::unique_ptr<Model>> CreateLlama(ConfigReader config, nn::WeightLoad& load,
                                           const LoadOptions& options) {
  ASSIGN_OR_RETURN(DecoderConfig c, ParseConfig(std::move(config)));
  return MakeDecoder(std::move(c), load, options);
}

}  // namespace tokamak
