// The only place that maps GGUF's tensor names to Hugging Face's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  bool swaps_ffn = false;     // files call the first matrix of an MLP ffn_down, the second ffn_up
};

// Null if not supported. `experts` and `sigmoid_gate` select between families that share a name.
const GgufArchitecture* FindGgufArchitecture(std::string_view name, bool experts,
                                             bool sigmoid_gate);
// "llama, ...", for messages.
std::string SupportedGgufArchitectures();

// The tensors of image encoders with this projector (clip.projector_type), and the class of the
// whole model. `swaps_ffn`: as in files of old converters. `merges_patches`: before the projector,
// which chooses between Pixtral's two. Null if not supported.
const GgufArchitecture* FindGgufProjector(std::string_view type, bool swaps_ffn,
                                          bool merges_patches);
std::string SupportedGgufProjectors();
// Whether a Hugging Face name is that of a tensor of an image encoder.
bool IsInGgufProjector(std::string_view hf_name);

struct GgufTensorPlace {
  std::string name;  // in the file; empty if the format has no name for it
  GgufRows rows = GgufRows::kAsIs;
  std::optional<int64_t> expert;  // index in a stack of experts
};
// Example: "model.layers.7.self_attn.q_proj.weight" → "blk.7.attn_q.weight" with interleaved query
// heads.
GgufTensorPlace FindGgufTensorPlace(const GgufArchitecture& architecture, std::string_view hf_name);
// The prefixes in files of all names with this prefix, if they have any.
// Example: "model.layers.7." → "blk.7."
std::vector<std::string> GgufPrefixes(std::string_view hf_prefix);

}  // namespace tokamak
