#include "weights/gguf_names.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace tokamak {
namespace {

// Shared by all decoders, unless a family's table has another entry.
constexpr GgufTensorName kDecoderTensors[] = {
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
    {"model.layers.*.mlp.gate.e_score_correction_bias", "blk.*.exp_probs_b.bias"},
    {"model.layers.*.mlp.gate", "blk.*.ffn_gate_inp"},
    {"model.layers.*.mlp.experts.*.gate_proj", "blk.*.ffn_gate_exps"},
    {"model.layers.*.mlp.experts.*.up_proj", "blk.*.ffn_up_exps"},
    {"model.layers.*.mlp.experts.*.down_proj", "blk.*.ffn_down_exps"},
    {"model.layers.*.mlp.shared_experts.gate_proj", "blk.*.ffn_gate_shexp"},
    {"model.layers.*.mlp.shared_experts.up_proj", "blk.*.ffn_up_shexp"},
    {"model.layers.*.mlp.shared_experts.down_proj", "blk.*.ffn_down_shexp"},
};

constexpr GgufTensorName kLlamaTensors[] = {
    {"rope_freqs", "rope_freqs"},  // has no Hugging Face name; computed from the config there
    {"model.layers.*.self_attn.q_proj", "blk.*.attn_q", GgufRows::kInterleavedQueryHeads},
    {"model.layers.*.self_attn.k_proj", "blk.*.attn_k", GgufRows::kInterleavedKeyHeads},
    // Mixtral.
    {"model.layers.*.block_sparse_moe.gate", "blk.*.ffn_gate_inp"},
    {"model.layers.*.block_sparse_moe.experts.*.w1", "blk.*.ffn_gate_exps"},
    {"model.layers.*.block_sparse_moe.experts.*.w2", "blk.*.ffn_down_exps"},
    {"model.layers.*.block_sparse_moe.experts.*.w3", "blk.*.ffn_up_exps"},
};

constexpr GgufTensorName kQwenTensors[] = {
    {"model.layers.*.mlp.shared_expert.gate_proj", "blk.*.ffn_gate_shexp"},
    {"model.layers.*.mlp.shared_expert.up_proj", "blk.*.ffn_up_shexp"},
    {"model.layers.*.mlp.shared_expert.down_proj", "blk.*.ffn_down_shexp"},
    {"model.layers.*.mlp.shared_expert_gate", "blk.*.ffn_gate_inp_shexp"},
};

// LongRoPE's factors are read with the configuration (gguf_config.cc).
constexpr GgufTensorName kPhi3Tensors[] = {
    {"model.layers.*.self_attn.qkv_proj", "blk.*.attn_qkv"},
    {"model.layers.*.mlp.gate_up_proj", "blk.*.ffn_up"},
};

constexpr GgufTensorName kGlm4Tensors[] = {
    {"model.layers.*.post_self_attn_layernorm", "blk.*.post_attention_norm"},
    {"model.layers.*.mlp.gate_up_proj", "blk.*.ffn_up"},
    {"model.layers.*.post_mlp_layernorm", "blk.*.post_ffw_norm"},
};

constexpr GgufTensorName kGlm4MoeTensors[] = {
    {"model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm"},
};

// Older files have kv_b_proj. k_b_proj (transposed) and v_b_proj exist only in GGUF (nn/mla.cc).
constexpr GgufTensorName kDeepseekTensors[] = {
    {"model.layers.*.self_attn.q_a_proj", "blk.*.attn_q_a"},
    {"model.layers.*.self_attn.q_a_layernorm", "blk.*.attn_q_a_norm"},
    {"model.layers.*.self_attn.q_b_proj", "blk.*.attn_q_b"},
    {"model.layers.*.self_attn.kv_a_proj_with_mqa", "blk.*.attn_kv_a_mqa"},
    {"model.layers.*.self_attn.kv_a_layernorm", "blk.*.attn_kv_a_norm"},
    {"model.layers.*.self_attn.kv_b_proj", "blk.*.attn_kv_b"},
    {"model.layers.*.self_attn.k_b_proj", "blk.*.attn_k_b"},
    {"model.layers.*.self_attn.v_b_proj", "blk.*.attn_v_b"},
};

constexpr GgufTensorName kOlmo2Tensors[] = {
    {"model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm"},
    {"model.layers.*.post_feedforward_layernorm", "blk.*.post_ffw_norm"},
};

constexpr GgufTensorName kMptTensors[] = {
    {"transformer.wte", "token_embd"},
    {"transformer.norm_f", "output_norm"},
    {"transformer.blocks.*.norm_1", "blk.*.attn_norm"},
    {"transformer.blocks.*.attn.Wqkv", "blk.*.attn_qkv"},
    {"transformer.blocks.*.attn.out_proj", "blk.*.attn_output"},
    {"transformer.blocks.*.norm_2", "blk.*.ffn_norm"},
    {"transformer.blocks.*.ffn.up_proj", "blk.*.ffn_up"},
    {"transformer.blocks.*.ffn.down_proj", "blk.*.ffn_down"},
};

constexpr GgufTensorName kBertTensors[] = {
    {"embeddings.word_embeddings", "token_embd"},
    {"embeddings.position_embeddings", "position_embd"},
    {"embeddings.token_type_embeddings", "token_types"},
    {"embeddings.LayerNorm", "token_embd_norm"},
    {"encoder.layer.*.attention.self.query", "blk.*.attn_q"},
    {"encoder.layer.*.attention.self.key", "blk.*.attn_k"},
    {"encoder.layer.*.attention.self.value", "blk.*.attn_v"},
    {"encoder.layer.*.attention.output.dense", "blk.*.attn_output"},
    {"encoder.layer.*.attention.output.LayerNorm", "blk.*.attn_output_norm"},
    {"encoder.layer.*.intermediate.dense", "blk.*.ffn_up"},
    {"encoder.layer.*.output.dense", "blk.*.ffn_down"},
    {"encoder.layer.*.output.LayerNorm", "blk.*.layer_output_norm"},
};

// GGUF stores the experts' gate and up in two tensors; Hugging Face alternates their rows in one.
constexpr GgufTensorName kGptOssTensors[] = {
    {"model.layers.*.self_attn.sinks", "blk.*.attn_sinks.weight"},
    {"model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm"},
    {"model.layers.*.mlp.router", "blk.*.ffn_gate_inp"},
};

constexpr GgufTensorName kGemmaTensors[] = {
    {"model.norm", "output_norm", GgufRows::kPlusOne},
    {"model.layers.*.input_layernorm", "blk.*.attn_norm", GgufRows::kPlusOne},
    {"model.layers.*.self_attn.q_norm", "blk.*.attn_q_norm", GgufRows::kPlusOne},
    {"model.layers.*.self_attn.k_norm", "blk.*.attn_k_norm", GgufRows::kPlusOne},
    {"model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm", GgufRows::kPlusOne},
    {"model.layers.*.pre_feedforward_layernorm", "blk.*.ffn_norm", GgufRows::kPlusOne},
    {"model.layers.*.post_feedforward_layernorm", "blk.*.post_ffw_norm", GgufRows::kPlusOne},
};

// The gated delta nets' A, minus exp(A_log), exists only in GGUF (nn/gated_delta_net.cc).
constexpr GgufTensorName kQwen35Tensors[] = {
    {"model.norm", "output_norm", GgufRows::kPlusOne},
    {"model.layers.*.input_layernorm", "blk.*.attn_norm", GgufRows::kPlusOne},
    {"model.layers.*.self_attn.q_norm", "blk.*.attn_q_norm", GgufRows::kPlusOne},
    {"model.layers.*.self_attn.k_norm", "blk.*.attn_k_norm", GgufRows::kPlusOne},
    {"model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm", GgufRows::kPlusOne},
    {"model.layers.*.linear_attn.in_proj_qkv", "blk.*.attn_qkv"},
    {"model.layers.*.linear_attn.in_proj_z", "blk.*.attn_gate"},
    {"model.layers.*.linear_attn.in_proj_b", "blk.*.ssm_beta"},
    {"model.layers.*.linear_attn.in_proj_a", "blk.*.ssm_alpha"},
    {"model.layers.*.linear_attn.conv1d", "blk.*.ssm_conv1d"},
    {"model.layers.*.linear_attn.A", "blk.*.ssm_a"},
    {"model.layers.*.linear_attn.dt_bias", "blk.*.ssm_dt.bias"},
    {"model.layers.*.linear_attn.norm", "blk.*.ssm_norm"},
    {"model.layers.*.linear_attn.out_proj", "blk.*.ssm_out"},
};

// CLIP and SigLIP, and the projectors of LLaVA and Gemma 3.
constexpr GgufTensorName kClipImageTensors[] = {
    {"vision_tower.embeddings.class_embedding", "v.class_embd"},
    {"vision_tower.embeddings.patch_embedding", "v.patch_embd"},
    {"vision_tower.embeddings.position_embedding", "v.position_embd"},
    {"vision_tower.pre_layrnorm", "v.pre_ln"},
    {"vision_tower.encoder.layers.*.layer_norm1", "v.blk.*.ln1"},
    {"vision_tower.encoder.layers.*.self_attn.q_proj", "v.blk.*.attn_q"},
    {"vision_tower.encoder.layers.*.self_attn.k_proj", "v.blk.*.attn_k"},
    {"vision_tower.encoder.layers.*.self_attn.v_proj", "v.blk.*.attn_v"},
    {"vision_tower.encoder.layers.*.self_attn.out_proj", "v.blk.*.attn_out"},
    {"vision_tower.encoder.layers.*.layer_norm2", "v.blk.*.ln2"},
    {"vision_tower.encoder.layers.*.mlp.fc1", "v.blk.*.ffn_up"},
    {"vision_tower.encoder.layers.*.mlp.fc2", "v.blk.*.ffn_down"},
    {"vision_tower.post_layernorm", "v.post_ln"},
    {"multi_modal_projector.linear_1", "mm.0"},
    {"multi_modal_projector.linear_2", "mm.2"},
    {"multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm", GgufRows::kPlusOne},
    {"multi_modal_projector.mm_input_projection_weight", "mm.input_projection.weight"},
};

// qkv is three tensors in most files, and each frame of the patch embedding is one
// (gguf_mmproj.cc).
constexpr GgufTensorName kQwenImageTensors[] = {
    {"visual.patch_embed.proj.weight", "v.patch_embd.weight"},
    {"visual.blocks.*.norm1", "v.blk.*.ln1"},
    {"visual.blocks.*.attn.qkv", "v.blk.*.attn_qkv"},
    {"visual.blocks.*.attn.q", "v.blk.*.attn_q"},
    {"visual.blocks.*.attn.k", "v.blk.*.attn_k"},
    {"visual.blocks.*.attn.v", "v.blk.*.attn_v"},
    {"visual.blocks.*.attn.proj", "v.blk.*.attn_out"},
    {"visual.blocks.*.norm2", "v.blk.*.ln2"},
    {"visual.blocks.*.mlp.fc1", "v.blk.*.ffn_up"},
    {"visual.blocks.*.mlp.fc2", "v.blk.*.ffn_down"},
    {"visual.blocks.*.mlp.gate_proj", "v.blk.*.ffn_gate"},
    {"visual.blocks.*.mlp.up_proj", "v.blk.*.ffn_up"},
    {"visual.blocks.*.mlp.down_proj", "v.blk.*.ffn_down"},
    {"visual.merger.ln_q", "v.post_ln"},
    {"visual.merger.mlp.*", "mm.*"},
    // Qwen3-VL. gguf_mmproj.cc has the layer's number for * in the merger list.
    {"visual.patch_embed.proj.bias", "v.patch_embd.bias"},
    {"visual.pos_embed", "v.position_embd"},
    {"visual.blocks.*.mlp.linear_fc1", "v.blk.*.ffn_up"},
    {"visual.blocks.*.mlp.linear_fc2", "v.blk.*.ffn_down"},
    {"visual.merger.norm", "v.post_ln"},
    {"visual.merger.linear_fc1", "mm.0"},
    {"visual.merger.linear_fc2", "mm.2"},
    {"visual.deepstack_merger_list.*.norm", "v.deepstack.*.norm"},
    {"visual.deepstack_merger_list.*.linear_fc1", "v.deepstack.*.fc1"},
    {"visual.deepstack_merger_list.*.linear_fc2", "v.deepstack.*.fc2"},
};

// Pixtral; behind the tower, Mistral Small 3.1 also merges patches.
constexpr GgufTensorName kPixtralImageTensors[] = {
    {"vision_tower.patch_conv", "v.patch_embd"},
    {"vision_tower.ln_pre", "v.pre_ln"},
    {"vision_tower.transformer.layers.*.attention_norm", "v.blk.*.ln1"},
    {"vision_tower.transformer.layers.*.attention.q_proj", "v.blk.*.attn_q",
     GgufRows::kInterleavedQueryHeads},
    {"vision_tower.transformer.layers.*.attention.k_proj", "v.blk.*.attn_k",
     GgufRows::kInterleavedQueryHeads},
    {"vision_tower.transformer.layers.*.attention.v_proj", "v.blk.*.attn_v"},
    {"vision_tower.transformer.layers.*.attention.o_proj", "v.blk.*.attn_out"},
    {"vision_tower.transformer.layers.*.ffn_norm", "v.blk.*.ln2"},
    {"vision_tower.transformer.layers.*.feed_forward.gate_proj", "v.blk.*.ffn_gate"},
    {"vision_tower.transformer.layers.*.feed_forward.up_proj", "v.blk.*.ffn_up"},
    {"vision_tower.transformer.layers.*.feed_forward.down_proj", "v.blk.*.ffn_down"},
    {"multi_modal_projector.norm", "mm.input_norm"},
    {"multi_modal_projector.patch_merger.merging_layer", "mm.patch_merger"},
    {"multi_modal_projector.linear_1", "mm.1"},
    {"multi_modal_projector.linear_2", "mm.2"},
};

constexpr GgufArchitecture kProjectors[] = {
    {"mlp", "LlavaForConditionalGeneration", kClipImageTensors, false, true},
    {"qwen2vl_merger", "Qwen2VLForConditionalGeneration", kQwenImageTensors, false, true},
    {"qwen2.5vl_merger", "Qwen2_5_VLForConditionalGeneration", kQwenImageTensors, false, true},
    {"qwen3vl_merger", "Qwen3VLForConditionalGeneration", kQwenImageTensors, false, true},
    {"gemma3", "Gemma3ForConditionalGeneration", kClipImageTensors, false, true},
    {"pixtral", "LlavaForConditionalGeneration", kPixtralImageTensors, false, true},
    {"pixtral", "Mistral3ForConditionalGeneration", kPixtralImageTensors, false, true},
};

constexpr GgufArchitecture OfOldFiles(GgufArchitecture projector) {
  projector.swaps_ffn = true;
  return projector;
}
// Pixtral has no old files.
constexpr GgufArchitecture kOldProjectors[] = {
    OfOldFiles(kProjectors[0]), OfOldFiles(kProjectors[1]), OfOldFiles(kProjectors[2]),
    OfOldFiles(kProjectors[3]), OfOldFiles(kProjectors[4])};

// The prefixes that Skip may get: of parts of the text model, of image encoders and of their parts.
constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
    {"model.layers.", "blk."},
    {"lm_head.", "output."},
    {"vision_tower.", "v."},
    {"vision_tower.encoder.layers.", "v.blk."},
    {"vision_tower.transformer.layers.", "v.blk."},
    {"vision_tower.post_layernorm.", "v.post_ln."},
    {"multi_modal_projector.", "mm."},
    {"visual.", "v."},
    {"visual.", "mm."},
};

constexpr GgufArchitecture kArchitectures[] = {
    {"bert", "BertModel", kBertTensors, false, /*encoder=*/true},
    {"llama", "LlamaForCausalLM", kLlamaTensors},
    {"llama", "MixtralForCausalLM", kLlamaTensors, true},
    {"mistral3", "LlamaForCausalLM", kLlamaTensors},  // Mistral Small 3.1 and 3.2
    {"qwen2", "Qwen2ForCausalLM", kQwenTensors},
    // For texts, mRoPE is RoPE.
    {"qwen2vl", "Qwen2ForCausalLM", kQwenTensors},
    {"qwen3", "Qwen3ForCausalLM", kQwenTensors},
    {"qwen3vl", "Qwen3ForCausalLM", kQwenTensors},
    {"qwen3moe", "Qwen3MoeForCausalLM", kQwenTensors, true},
    {"qwen2moe", "Qwen2MoeForCausalLM", kQwenTensors, true},
    {"qwen35", "Qwen3_5ForCausalLM", kQwen35Tensors},
    {"phi3", "Phi3ForCausalLM", kPhi3Tensors},
    {"gemma2", "Gemma2ForCausalLM", kGemmaTensors},
    {"gemma3", "Gemma3ForCausalLM", kGemmaTensors},
    {"gpt-oss", "GptOssForCausalLM", kGptOssTensors, true},
    {"glm4", "Glm4ForCausalLM", kGlm4Tensors},
    {"glm4moe", "Glm4MoeForCausalLM", kGlm4MoeTensors, true},
    {"deepseek2", "DeepseekV2ForCausalLM", kDeepseekTensors, true},
    {.name = "deepseek2",
     .hf_name = "DeepseekV3ForCausalLM",
     .tensors = kDeepseekTensors,
     .has_experts = true,
     .sigmoid_gate = true},
    {"mpt", "MPTForCausalLM", kMptTensors},
    {"olmo2", "Olmo2ForCausalLM", kOlmo2Tensors},
    {"smollm3", "SmolLM3ForCausalLM", kLlamaTensors},
    {"ernie4_5", "Ernie4_5ForCausalLM", {}},
};

std::string NamesOf(std::span<const GgufArchitecture> list) {
  std::string out;
  for (const GgufArchitecture& architecture : list) {
    if (out.ends_with(architecture.name)) continue;  // two families with one name
    if (!out.empty()) out += ", ";
    out += architecture.name;
  }
  return out;
}

// Exchanges the parts "ffn_up" and "ffn_down" of a name.
void SwapFfn(std::string& name) {
  constexpr std::string_view kUp = ".ffn_up", kDown = ".ffn_down";
  const size_t up = name.find(kUp), down = name.find(kDown);
  if (up != std::string::npos) name.replace(up, kUp.size(), kDown);
  if (down != std::string::npos) name.replace(down, kDown.size(), kUp);
}

bool IsNumber(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return '0' <= c && c <= '9'; });
}

}  // namespace

const GgufArchitecture* FindGgufArchitecture(std::string_view name, bool experts,
                                             bool sigmoid_gate) {
  const auto fit = [&](const GgufArchitecture& a) {
    return (a.has_experts == experts ? 1 : 0) + (a.sigmoid_gate == sigmoid_gate ? 1 : 0);
  };
  const GgufArchitecture* found = nullptr;
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (architecture.name != name) continue;
    if (found == nullptr || fit(architecture) > fit(*found)) found = &architecture;
  }
  return found;
}

std::string SupportedGgufArchitectures() { return NamesOf(kArchitectures); }

const GgufArchitecture* FindGgufProjector(std::string_view type, bool swaps_ffn,
                                          bool merges_patches) {
  const std::span<const GgufArchitecture> all =
      swaps_ffn ? std::span<const GgufArchitecture>(kOldProjectors) : kProjectors;
  const GgufArchitecture* found = nullptr;
  for (const GgufArchitecture& projector : all) {
    if (projector.name == type && (found == nullptr || merges_patches)) found = &projector;
  }
  return found;
}

std::string SupportedGgufProjectors() { return NamesOf(kProjectors); }

bool IsInGgufProjector(std::string_view hf_name) {
  return hf_name.starts_with("vision_tower.") || hf_name.starts_with("multi_modal_projector.") ||
         hf_name.starts_with("visual.");
}

std::vector<std::string> GgufPrefixes(std::string_view hf_prefix) {
  std::vector<std::string> prefixes;
  for (const auto& [hf, gguf] : kPrefixes) {
    if (!hf_prefix.starts_with(hf)) continue;
    prefixes.push_back(std::string(gguf) + std::string(hf_prefix.substr(hf.size())));
  }
  return prefixes;
}

GgufTensorPlace FindGgufTensorPlace(const GgufArchitecture& architecture,
                                    std::string_view hf_name) {
  const size_t dot = hf_name.rfind('.');
  if (dot == std::string_view::npos) return {};
  // Replaces numeric parts by *.
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
  const std::string_view last = hf_name.substr(dot);
  const std::string whole = pattern + std::string(last);
  const auto find = [&](std::span<const GgufTensorName> table) -> const GgufTensorName* {
    const auto matches = [&](const GgufTensorName& entry) {
      return entry.hf == whole || entry.hf == pattern;
    };
    const auto found = std::find_if(table.begin(), table.end(), matches);
    return found == table.end() ? nullptr : &*found;
  };
  const GgufTensorName* entry = find(architecture.tensors);
  if (entry == nullptr && !architecture.encoder) entry = find(kDecoderTensors);
  if (entry == nullptr) return {};
  GgufTensorPlace place = {entry->gguf, entry->rows, std::nullopt};
  if (const size_t star = place.name.find('*'); star != std::string::npos) {
    place.name.replace(star, 1, numbers.front());
  }
  if (numbers.size() > 1) {
    int64_t expert = 0;
    const std::string_view digits = numbers[1];
    std::from_chars(digits.data(), digits.data() + digits.size(), expert);
    place.expert = expert;
  }
  if (entry->hf != whole) place.name += last;
  if (architecture.swaps_ffn) SwapFfn(place.name);
  return place;
}

}  // namespace tokamak
