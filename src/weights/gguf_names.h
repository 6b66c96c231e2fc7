// The only place that maps GGUF's tensor names to Hugging Face's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tokamak {

// A change that llama.cpp's converter makes to the rows of a tensor.
enum class GgufRows {
  kAsIs,
  // Interleaves the rows of each head, (0, d/2, 1, d/2 + 1, ...), so that RoPE rotates neighbours
  // instead of Hugging Face's halves.
  kInterleavedQueryHeads,
  kInterleavedKeyHeads,
  // Adds 1 to each element: Gemma stores the difference from 1.
  kPlusOne,
};

// Names without the last part (".weight", ".bias"), or complete ones. The first * stands for the
// layer, the second for the expert: GGUF stores all experts of a layer in one tensor.
struct GgufTensorName {
  const char* hf;
  const char* gguf;
  GgufRows rows = GgufRows::kAsIs;
};

// Values of expert_gating_func.
inline constexpr int kGgufSoftmaxGate = 1;
inline constexpr int kGgufSigmoidGate = 2;

struct GgufArchitecture {
  const char* name;     // general.architecture and the prefix of its metadata keys
  const char* hf_name;  // Hugging Face's class
  std::span<const GgufTensorName> tensors;  // besides those shared by all decoders
  bool has_experts = false;
  bool encoder = false;
  bool sigmoid_gate = false;  // the router's activation
};

// Null if not supported. `experts` and `sigmoid_gate` select between families that share a name.
const GgufArchitecture* FindGgufArchitecture(std::string_view name, bool experts,
                                             bool sigmoid_gate);
// "llama, ...", for messages.
std::string SupportedGgufArchitectures();

struct GgufTensorPlace {
  std::string name;  // in the file; empty if the format has no name for it
  GgufRows rows = GgufRows::kAsIs;
  std::optional<int64_t> expert;  // index in a stack of experts
};
// Example: "model.layers.7.self_attn.q_proj.weight" → "blk.7.attn_q.weight" with interleaved query
// heads.
GgufTensorPlace FindGgufTensorPlace(const GgufArchitecture& architecture, std::string_view hf_name);

}  // namespace tokamak
