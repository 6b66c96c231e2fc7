#include "weights/gguf_names.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <vector>

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

constexpr GgufTensorName kQwen3Tensors[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"model.layers.*.input_layernorm", "blk.*.attn_norm"},
    {"model.layers.*.self_attn.q_proj", "blk.*.attn_q"},
    {"model.layers.*.self_attn.k_proj", "blk.*.attn_k"},
    {"model.layers.*.self_attn.v_proj", "blk.*.attn_v"},
    {"model.layers.*.self_attn.o_proj", "blk.*.attn_output"},
    {"model.layers.*.self_attn.q_norm", "blk.*.attn_q_norm"},
    {"model.layers.*.self_attn.k_norm", "blk.*.attn_k_norm"},
    {"model.layers.*.post_attention_layernorm", "blk.*.ffn_norm"},
    {"model.layers.*.mlp.gate_proj", "blk.*.ffn_gate"},
    {"model.layers.*.mlp.up_proj", "blk.*.ffn_up"},
    {"model.layers.*.mlp.down_proj", "blk.*.ffn_down"},
    {"model.layers.*.mlp.gate", "blk.*.ffn_gate_inp"},
    {"model.layers.*.mlp.experts.*.gate_proj", "blk.*.ffn_gate_exps"},
    {"model.layers.*.mlp.experts.*.up_proj", "blk.*.ffn_up_exps"},
    {"model.layers.*.mlp.experts.*.down_proj", "blk.*.ffn_down_exps"},
};

constexpr GgufArchitecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", kLlamaTensors},
    {"qwen3", "Qwen3ForCausalLM", kQwen3Tensors},
    {"qwen3moe", "Qwen3MoeForCausalLM", kQwen3Tensors, true},
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
  // Replaces parts that are numbers by *.
  std::string pattern;
  std::vector<std::string_view> numbers;
  for (std::string_view rest = hf_name.substr(0, dot); !rest.empty();) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest = rest.substr(std::min(end + 1, rest.size()));
    if (!pattern.empty()) pattern += '.';
    if (IsNumber(part)) {
      numbers.push_back(part);
      pattern += '*';
    } else {
      pattern += part;
    }
  }
  for (const GgufTensorName& entry : architecture.tensors) {
    if (entry.hf != pattern) continue;
    GgufTensorPlace place = {entry.gguf, entry.rows, std::nullopt};
    if (const size_t star = place.name.find('*'); star != std::string::npos) {
      place.name.replace(star, 1, numbers.front());
    }
    if (numbers.size() > 1) {
      int64_t expert = 0;
      const std::string_view digits = numbers[1];
      std::from_chars(digits.data(), digits.data() + digits.size(), expert);
      place.expert = expert;
    }
    place.name += hf_name.substr(dot);
    return place;
  }
  return {};
}

}  // namespace tokamak
