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
  int32_t max_context = 0;  // positions that the model was trained for
  int64_t num_parameters = 0;
  int64_t weight_bytes = 0;  // as packed
  int64_t expert_parameters = 0;
  int64_t expert_bytes = 0;  // a token reads expert_share of them
  double expert_share = 1;
  int32_t num_moe_layers = 0;  // layers with experts
  int32_t max_experts = 0;     // of any layer
  nn::CacheLayout cache;
};

// Immutable after loading; independent of the backend. Used by one runner.
class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelSpec& spec() const = 0;

  // Runs all layers over the pass's tokens and writes their cache entries. Returns the final
  // normalized hidden states of pass.logit_rows: [R, hidden], in the type that Logits takes, or f32
  // if loaded to embed. Only this result stays allocated in pass.arena.
  virtual Tensor Forward(nn::Pass& pass) const = 0;

  // f32 [rows, vocab_size] for any rows of Forward's result. Unavailable if loaded to embed.
  virtual Tensor Logits(nn::Pass& pass, Tensor hidden) const = 0;

  // The argmax of Logits, in the pass's arena, if it costs less; else none.
  virtual std::optional<ArgmaxLogits> Argmax(nn::Pass& /*pass*/, Tensor /*hidden*/) const {
    return std::nullopt;
  }
};

}  // namespace tokamak
