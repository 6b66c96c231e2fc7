#include "weights/gguf_names.h"

#include <algorithm>
#include <iterator>

namespace tokamak {
namespace {

constexpr GgufTensorName kLlamaTensors[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"rope_freqs", "rope_freqs"},  // no Hugging Face name: there it is computed from the config
    {"model.layers.*.input_layernorm", "blk.*.attn_norm"},
    {"model.layers.*.self_attn.q_proj", "blk.*.attn_q", GgufRows::kInterleavedQueryHeads},
    {"model.layers.*.self_attn.k_proj", "blk.*.attn_k", GgufRows::kInterleavedKeyHeads},
    {"model.layers.*.self_attn.v_proj", "blk.*.attn_v"},
    {"model.layers.*.self_attn.o_proj", "blk.*.attn_output"},
    {"model.layers.*.post_attention_layernorm", "blk.*.ffn_norm"},
    {"model.layers.*.mlp.gate_proj", "blk.*.ffn_gate"},
    {"model.layers.*.mlp.up_proj", "blk.*.ffn_up"},
    {"model.layers.*.mlp.down_proj", "blk.*.ffn_down"},
};

constexpr GgufArchitecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", kLlamaTensors},
};

bool IsNumber(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return '0' <= c && c <= '9'; });
}

}  // namespace

const GgufArchitecture* FindGgufArchitecture(std::string_view name) {
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
  }
  return nullptr;
}

std::string SupportedGgufArchitectures() {
  std::string out;
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (!out.empty()) out += ", ";
    out += architecture.name;
  }
  return out;
}

GgufTensorPlace FindGgufTensorPlace(const GgufArchitecture& architecture,
                                    std::string_view hf_name) {
  const size_t dot = hf_name.rfind('.');
  if (dot == std::string_view::npos) return {};
  // Replaces the first part that is a number by *.
  std::string pattern, layer;
  for (std::string_view rest = hf_name.substr(0, dot); !rest.empty();) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest = rest.substr(std::min(end + 1, rest.size()));
    if (!pattern.empty()) pattern += '.';
    if (layer.empty() && IsNumber(part)) {
      layer = part;
      pattern += '*';
    } else {
      pattern += part;
    }
  }
  for (const GgufTensorName& entry : architecture.tensors) {
    if (entry.hf != pattern) continue;
    GgufTensorPlace place = {entry.gguf, entry.rows};
    if (const size_t star = place.name.find('*'); star != std::string::npos) {
      place.name.replace(star, 1, layer);
    }
    place.name += hf_name.substr(dot);
    return place;
  }
  return {};
}

}  // namespace tokamak
