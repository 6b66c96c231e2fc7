#include "models/qwen_config.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/layer_types.h"

namespace tokamak {

void ParseQwenExperts(ConfigReader& reader, DecoderConfig& c) {
  nn::MoeShape& moe = c.moe;
  moe.hidden_size = c.hidden_size;
  moe.intermediate_size = reader.Int("moe_intermediate_size", kIntermediateSizes);
  moe.activation = c.mlp.activation;
  // transformers writes the second name since version 5.
  const char* count = reader.Has("num_local_experts") ? "num_local_experts" : "num_experts";
  moe.router.num_experts = reader.Int(count, Positive(1024));
  moe.router.top_k = reader.Int("num_experts_per_tok", Positive(moe.router.num_experts));
  moe.router.normalize = reader.BoolOr("norm_topk_prob", false);
  const int64_t step = reader.IntOr("decoder_sparse_step", 1);
  const std::vector<int32_t> dense = reader.Has("mlp_only_layers")
                                         ? reader.Ints("mlp_only_layers", NonNegative())
                                         : std::vector<int32_t>();
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    c.layers[i].experts =
        std::find(dense.begin(), dense.end(), index) == dense.end() && (index + 1) % step == 0;
  }
  reader.Ignore({"output_router_logits", "router_aux_loss_coef"});  // for training only
}

int32_t ParseQwenWindow(ConfigReader& reader) {
  const int64_t window = reader.IntOr("sliding_window", 4096, NonNegative());  // 0: none
  return reader.BoolOr("use_sliding_window", false) ? static_cast<int32_t>(window) : 0;
}

std::vector<bool> ParseQwenSlidingLayers(ConfigReader& reader, size_t num_layers) {
  const int64_t first = reader.IntOr("max_window_layers", 28, NonNegative(10000));
  std::vector<bool> sliding(num_layers);
  for (size_t i = 0; i < num_layers; ++i) sliding[i] = static_cast<int64_t>(i) >= first;
  return ParseSlidingLayers(reader, std::move(sliding));
}

}  // namespace tokamak
