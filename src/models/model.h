// A loaded model: weights plus the forward pass of its family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nn/cache_layout.h"
#include "nn/pass.h"

namespace tokamak {

struct ModelSpec {
  std::string architecture;  // Hugging Face class name, e.g. "LlamaForCausalLM"
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t max_context = 0;  // positions the model was trained for
  int64_t num_parameters = 0;
  int64_t weight_bytes = 0;  // as packed
  int64_t expert_parameters = 0;
  int64_t expert_bytes = 0;  // of which a token reads expert_share
  double expert_share = 1;
  int32_t num_moe_layers = 0;  // layers with experts
  int32_t max_experts = 0;     // of one of them
  nn::CacheLayout cache;
};

// Immutable after loading; knows no backend. Used by one runner.
class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelSpec& spec() const = 0;

  // Runs all layers over the pass's tokens, writing their cache entries, and returns the final
  // normalized hidden states of pass.logit_rows: [R, hidden], in the type that Logits takes, or f32
  // where the model was loaded to embed. Lives in pass.arena; everything else allocated there is
  // released.
  virtual Tensor Forward(nn::Pass& pass) const = 0;

  // f32 [rows, vocab_size], for any rows of what Forward returned. Not of a model that was loaded
  // to embed.
  virtual Tensor Logits(nn::Pass& pass, Tensor hidden) const = 0;

  // The largest of what Logits would give, in the pass's arena, where that costs less; or nothing.
  virtual std::optional<ArgmaxLogits> Argmax(nn::Pass& /*pass*/, Tensor /*hidden*/) const {
    return std::nullopt;
  }
};

}  // namespace tokamak
