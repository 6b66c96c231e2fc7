// Qwen3.5, dense: most layers are gated delta nets (arXiv:2412.06464), the others have attention
// whose outputs are gated. Reference: transformers, models/qwen3_5.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/families.h"
#include "models/fields.h"
#include "nn/gated_delta_net.h"

namespace tokamak {
namespace {

// Layers with linear attention: those in layer_types, or all but every nth.
void ParseLinearLayers(ConfigReader& reader, DecoderConfig& c) {
  constexpr const char* kTypes = "layer_types";
  constexpr const char* kInterval = "full_attention_interval";
  const bool listed = reader.Has(kTypes);
  std::vector<std::string> types(c.layers.size(), "full_attention");
  if (listed) {
    types = reader.Strings(kTypes);
    reader.Ignore({kInterval});
  } else {
    const int32_t interval = reader.IntOr(kInterval, 4, Positive(10000));
    for (size_t i = 0; i < types.size(); ++i) {
      if ((i + 1) % static_cast<size_t>(interval) != 0) types[i] = "linear_attention";
    }
  }
  if (types.size() != c.layers.size()) {
    return reader.Fail(kTypes, "must name a type for each layer");
  }
  bool any_full = false;
  for (size_t i = 0; i < types.size(); ++i) {
    c.layers[i].linear = types[i] == "linear_attention";
    any_full = any_full || !c.layers[i].linear;
    if (!c.layers[i].linear && types[i] != "full_attention") {
      reader.Fail(kTypes, "\"" + types[i] + "\" is not supported");
    }
  }
  if (!any_full) {
    reader.Fail(listed ? kTypes : kInterval, "leaves no layer with full attention");
  }
}

nn::GatedDeltaNetConfig ParseDeltaNet(ConfigReader& reader, const DecoderConfig& c) {
  nn::GatedDeltaNetConfig net;
  net.hidden_size = c.hidden_size;
  net.num_key_heads = reader.IntOr("linear_num_key_heads", 16, kHeadCounts);
  net.num_value_heads = reader.IntOr("linear_num_value_heads", 32, kHeadCounts);
  if (net.num_value_heads % net.num_key_heads != 0) {
    reader.Fail("linear_num_key_heads", "does not divide linear_num_value_heads");
  }
  net.key_dim = reader.IntOr("linear_key_head_dim", 128, kHeadDims);
  net.value_dim = reader.IntOr("linear_value_head_dim", 128, kHeadDims);
  net.conv_kernel = reader.IntOr("linear_conv_kernel_dim", 4, Positive(1 << 10));
  net.norm_eps = c.norm.eps;
  return net;
}

}  // namespace

DecoderConfig ParseQwen35Text(ConfigReader& reader) {
  // The defaults of the reference's class.
  reader.SetDefault("vocab_size", 248320);
  reader.SetDefault("hidden_size", 4096);
  reader.SetDefault("intermediate_size", 12288);
  reader.SetDefault("num_hidden_layers", 32);
  reader.SetDefault("num_attention_heads", 16);
  reader.SetDefault("num_key_value_heads", 4);
  reader.SetDefault("head_dim", 256);
  reader.SetDefault("hidden_act", "silu");
  reader.SetDefault("max_position_embeddings", 32768);
  reader.SetDefault("rms_norm_eps", 1e-6);
  DecoderConfig c = ParseDecoder(reader, {.rope = {.partial_rotary_factor = 0.25,
                                                   .sections = {11, 11, 10},
                                                   .sections_interleaved = true}});
  c.norm.offset = 1;
  ParseLinearLayers(reader, c);
  c.layer = [norm = c.norm, net = ParseDeltaNet(reader, c)](const LayerBuilder& b) {
    SublayerPtr attention;
    if (b.layer.linear) {
      attention = std::make_unique<nn::GatedDeltaNet>(b.at / "linear_attn", net);
    } else {
      attention = b.Attention("self_attn", {.qk_norm = norm, .output_gate = true});
    }
    return PreNorm{b.Norm("input_layernorm"), std::move(attention),
                   b.Norm("post_attention_layernorm"), b.FeedForward("mlp")};
  };
  // The convolutions' activation, too.
  reader.Expect("hidden_act", "silu");
  // The reference does not read these fields, and computes as if they had these values.
  reader.ExpectOrAbsent("attn_output_gate", true);
  reader.ExpectOrAbsent("output_gate_type", "swish");
  reader.ExpectOrAbsent("mamba_ssm_dtype", "float32");
  reader.Ignore({"mlp_only_layers", "mtp_use_dedicated_embeddings"});
  c.mtp_layers = reader.IntOr("mtp_num_hidden_layers", 0, NonNegative(16));
  return c;
}

Result<std::unique_ptr<Model>> CreateQwen35(ConfigReader config, nn::WeightLoad& load,
                                            const LoadOptions& options) {
  DecoderConfig c = ParseQwen35Text(config);
  ASSIGN_OR_RETURN(c, config.Finish(std::move(c)));
  load.tensors.Skip("mtp.");  // layers that only draft tokens
  return MakeDecoder(std::move(c), load, options);
}

}  // namespace tokamak
