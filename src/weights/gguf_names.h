// How GGUF files name what Hugging Face checkpoints hold: the one place where the two are mapped.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tokamak {

// What llama.cpp's converter did to the rows of a tensor.
enum class GgufRows {
  kAsIs,
  // Each head's rows were interleaved, (0, d/2, 1, d/2 + 1, ...), which turns the half-split RoPE
  // of Hugging Face into a RoPE of neighbours.
  kInterleavedQueryHeads,
  kInterleavedKeyHeads,
  // 1 was added to each element: what Gemma stores as a difference from 1.
  kPlusOne,
};

// Names without their last part (".weight", ".bias"), or whole ones; * stands for the layer, and a
// second one for the expert: the file holds all experts of a layer in one tensor.
struct GgufTensorName {
  const char* hf;
  const char* gguf;
  GgufRows rows = GgufRows::kAsIs;
};

// Values of expert_gating_func.
inline constexpr int kGgufSoftmaxGate = 1;
inline constexpr int kGgufSigmoidGate = 2;

struct GgufArchitecture {
  const char* name;     // general.architecture, and the prefix of its metadata keys
  const char* hf_name;  // Hugging Face's class
  std::span<const GgufTensorName> tensors;  // beside those that all decoders share
  bool has_experts = false;
  bool encoder = false;
  bool sigmoid_gate = false;  // of the experts
};

// Null when the architecture is not supported. What the file has decides between families of one
// name.
const GgufArchitecture* FindGgufArchitecture(std::string_view name, bool experts,
                                             bool sigmoid_gate);
// "llama, ...", for messages.
std::string SupportedGgufArchitectures();

struct GgufTensorPlace {
  std::string name;  // in the file; empty when the format has no name for it
  GgufRows rows = GgufRows::kAsIs;
  std::optional<int64_t> expert;  // which matrix of a stack
};
// "model.layers.7.self_attn.q_proj.weight" → "blk.7.attn_q.weight", interleaved query heads.
GgufTensorPlace FindGgufTensorPlace(const GgufArchitecture& architecture, std::string_view hf_name);

}  // namespace tokamak
