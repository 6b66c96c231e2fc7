// The weights of an MoE layer's experts, however the checkpoint stores them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "nn/builder.h"

namespace tokamak::nn {

// How a checkpoint stores experts, all of the same size.
enum class ExpertStorage {
  // <e>.gate_proj, <e>.up_proj and <e>.down_proj, each [out, in].
  kSeparate,
  // gpt-oss: one tensor for all experts, gate_up_proj [experts, in, 2 · inner] with gate and up
  // alternating, and down_proj [experts, inner, out]; or MXFP4, [experts, out, in], in
  // gate_up_proj_blocks, gate_up_proj_scales and so on. Biases are gate_up_proj_bias and
  // down_proj_bias. If none of these exist, as in GGUF files, kSeparate applies.
  kFused,
  // Qwen3-VL-MoE: the same without biases, and with all of gate before all of up. transformers
  // writes [experts, out, in]; if both shapes are equal, this is meant.
  kFusedHalves,
};

struct ExpertsShape {
  int64_t num_experts = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  bool bias = false;
  ExpertStorage storage = ExpertStorage::kSeparate;
  std::string_view gate_proj = "gate_proj";  // names for kSeparate
  std::string_view up_proj = "up_proj";
  std::string_view down_proj = "down_proj";
};

// This rank's shard: rows of gate and up, columns of down.
class Experts {
 public:
  Experts() = default;
  // Reads and records the experts below b. A token uses `share` of them.
  Experts(const Builder& b, const ExpertsShape& shape, double share);

  // One per expert: [2 · shard, hidden_size] with gate above up, and [hidden_size, shard].
  const PackedStack& gate_up() const { return *gate_up_; }
  const PackedStack& down() const { return *down_; }
  // f32 [experts, rows of the weight], or empty.
  const Tensor& gate_up_bias() const { return gate_up_bias_.tensor; }
  const Tensor& down_bias() const { return down_bias_.tensor; }

 private:
  void ReadSeparate(const Builder& b, const ExpertsShape& shape, IndexRange shard);
  void ReadSeparateBiases(const Builder& b, const ExpertsShape& shape, IndexRange shard);
  void ReadFused(const Builder& b, const ExpertsShape& shape, IndexRange shard);
  void ReadFusedBiases(const Builder& b, const ExpertsShape& shape, IndexRange shard);

  StackPtr gate_up_;
  StackPtr down_;
  OwnedTensor gate_up_bias_;
  OwnedTensor down_bias_;
};

}  // namespace tokamak::nn
