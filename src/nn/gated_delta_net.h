// Gated delta nets: linear attention whose state is a matrix per head, updated by the delta rule
// with a decay. arXiv:2412.06464; as in Qwen3-Next and Qwen3.5.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/builder.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/pass.h"
#include "nn/sublayer.h"

namespace tokamak::nn {

struct GatedDeltaNetConfig {
  int32_t hidden_size = 0;
  int32_t num_key_heads = 0;    // divides num_value_heads; consecutive value heads share one
  int32_t num_value_heads = 0;  // each has a state
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t conv_kernel = 0;
  float norm_eps = 0;  // of the norm of each value head's output
};

class GatedDeltaNet final : public Sublayer {
 public:
  // Reads in_proj_qkv, in_proj_z, in_proj_b, in_proj_a, conv1d, A_log (or A, which is -exp(A_log)),
  // dt_bias, norm and out_proj below b, and adds a layer with a state to the load's cache layout.
  // With A, the value heads that share a head of keys are not neighbors (GatedDelta::tiled).
  GatedDeltaNet(const Builder& b, const GatedDeltaNetConfig& config);

  DType activation() const override { return in_.activation(); }
  DType output() const override { return out_.output(); }
  void ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const override;

 private:
  // This rank's heads, and columns of the projections' outputs.
  struct Shard {
    HeadShard heads;
    IndexRange q, k, v;        // of in_proj_qkv
    IndexRange values, gates;  // of in_proj_z, and of in_proj_b and in_proj_a
  };

  void ReadInput(const Builder& b, const GatedDeltaNetConfig& config, const Shard& shard);
  void ReadConvolution(const Builder& b, const GatedDeltaNetConfig& config, const Shard& shard);

  StateLayerSpec spec_;  // of this rank's heads
  bool tiled_ = false;
  int32_t layer_ = 0;  // index into the pass's state layers
  Linear in_;          // to [q, k, v, z, b, a]
  OwnedTensor conv_;   // f32 [conv_kernel, conv_channels]
  OwnedTensor rate_;   // f32 [heads]: exp(A_log)
  OwnedTensor bias_;   // f32 [heads]: dt_bias
  Norm norm_;
  Linear out_;
};

}  // namespace tokamak::nn
