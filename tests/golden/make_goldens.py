"""Makes tiny random Hugging Face checkpoints (hf/<name>/) and their goldens (hf/<name>.json), two for
each family: one of odd sizes, one with the family's own head, group and expert sizes and few layers.

The logits and greedy tokens are those of transformers in float32 on a CPU, with bf16 weights as
checkpoints have them. Norm weights differ from 1 and biases from 0, and the texts are longer than
every window and RoPE threshold, so that any omission shows.

  python3 tests/golden/make_goldens.py [NAME...]
"""
import copy
import json
import pathlib
import shutil
import sys

import safetensors.torch
import torch
import transformers
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import make_tiny_llama

HERE = pathlib.Path(__file__).parent / "hf"


def rope(theta=10000.0, **others):
    return {"rope_type": "default", "rope_theta": theta} | others


ODD = dict(vocab_size=131, hidden_size=42, intermediate_size=61, num_hidden_layers=3, num_attention_heads=6,
           num_key_value_heads=3, head_dim=14, max_position_embeddings=512, rms_norm_eps=1e-5,
           tie_word_embeddings=False, rope_parameters=rope())
WIDE = dict(vocab_size=136, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, head_dim=128, max_position_embeddings=512, rms_norm_eps=1e-6,
            tie_word_embeddings=True, rope_parameters=rope())
# Families whose heads are hidden_size / num_attention_heads wide.
ODD_HEADS = {k: v for k, v in ODD.items() if k != "head_dim"} | dict(hidden_size=60)
WIDE_HEADS = {k: v for k, v in WIDE.items() if k != "head_dim"} | dict(
    hidden_size=128, num_attention_heads=1, num_key_value_heads=1)
QWEN_EXPERTS = dict(decoder_sparse_step=1, mlp_only_layers=[], moe_intermediate_size=37)
LONG_ROPE = dict(
    rope_type="longrope", original_max_position_embeddings=64, factor=8.0)
GPT_OSS_ROPE = dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                    original_max_position_embeddings=4096)

# DeepSeek has different sizes for the rotated part of a head, the rest of it, and values.
ODD_LATENT, WIDE_LATENT = ({k: v for k, v in sizes.items() if k not in ("head_dim", "num_key_value_heads")}
                           for sizes in (ODD, WIDE))
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=128, beta_fast=32, beta_slow=1)

# Name: (prefix of the family's classes, parameters).
MODELS = {
    "mistral_odd": ("Mistral", ODD | dict(sliding_window=37)),
    "mistral_128": ("Mistral", WIDE | dict(sliding_window=None, tie_word_embeddings=False)),
    "mixtral_odd": ("Mixtral", ODD | dict(num_local_experts=7, num_experts_per_tok=3, sliding_window=50)),
    "mixtral_128": ("Mixtral", WIDE | dict(num_local_experts=8, num_experts_per_tok=2, tie_word_embeddings=False,
                                           intermediate_size=32)),
    "qwen2_odd": ("Qwen2", ODD_HEADS | dict(use_sliding_window=True, sliding_window=37, max_window_layers=1)),
    "qwen2_128": ("Qwen2", WIDE_HEADS),
    "qwen2_moe_odd": ("Qwen2Moe", ODD_HEADS | QWEN_EXPERTS | dict(
        num_experts=7, num_experts_per_tok=3, shared_expert_intermediate_size=53, norm_topk_prob=False,
        use_sliding_window=True, sliding_window=37, max_window_layers=3)),
    "qwen2_moe_128": ("Qwen2Moe", WIDE_HEADS | QWEN_EXPERTS | dict(
        num_experts=60, num_experts_per_tok=4, shared_expert_intermediate_size=48, moe_intermediate_size=8,
        norm_topk_prob=False, tie_word_embeddings=False, intermediate_size=64, mlp_only_layers=[0])),
    "smollm3_odd": ("SmolLM3", ODD_HEADS | dict(
        no_rope_layers=[0, 1, 0], attention_bias=True, mlp_bias=True, use_sliding_window=True, sliding_window=37)),
    "smollm3_128": ("SmolLM3", WIDE_HEADS | dict(num_hidden_layers=4, intermediate_size=48)),
    "phi3_odd": ("Phi3", ODD_HEADS | dict(sliding_window=37)),
    # Like Phi-4-mini: three quarters of a head are rotated, tied embeddings.
    "phi3_long": ("Phi3", WIDE_HEADS | dict(
        rope_parameters=rope(partial_rotary_factor=0.75) | LONG_ROPE | dict(
            short_factor=[1 + i / 48 for i in range(48)], long_factor=[1 + i / 4 for i in range(48)]),
        original_max_position_embeddings=64)),
    "gemma2_odd": ("Gemma2", ODD | dict(
        query_pre_attn_scalar=20, sliding_window=37, attn_logit_softcapping=2.0, final_logit_softcapping=5.0)),
    "gemma2_256": ("Gemma2", WIDE | dict(
        head_dim=256, num_attention_heads=2, query_pre_attn_scalar=256, sliding_window=64,
        final_logit_softcapping=30.0, attn_logit_softcapping=50.0)),
    "gemma3_odd": ("Gemma3Text", ODD | dict(
        query_pre_attn_scalar=20, sliding_window=37,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
            "sliding_attention": rope(100.0)})),
    "gemma3_256": ("Gemma3Text", WIDE | dict(
        head_dim=256, num_attention_heads=2, num_hidden_layers=3, query_pre_attn_scalar=168, sliding_window=64,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"], intermediate_size=48,
        rope_parameters={"full_attention": rope(1e6), "sliding_attention": rope()})),
    "olmo2_odd": ("Olmo2", ODD_HEADS | dict(attention_bias=True)),
    "olmo2_128": ("Olmo2", WIDE_HEADS | dict(hidden_size=256, num_attention_heads=2, intermediate_size=32,
                                             tie_word_embeddings=False, num_hidden_layers=2)),
    "glm4_odd": ("Glm4", ODD | dict(head_dim=12, attention_bias=True, rope_parameters=rope(partial_rotary_factor=0.5))),
    "glm4_128": ("Glm4", WIDE | dict(tie_word_embeddings=False, attention_bias=False,
                                     rope_parameters=rope(partial_rotary_factor=0.5))),
    "glm4_moe_odd": ("Glm4Moe", ODD | dict(
        head_dim=12, attention_bias=True, use_qk_norm=False, n_routed_experts=6, num_experts_per_tok=2,
        n_shared_experts=2, moe_intermediate_size=19, routed_scaling_factor=1.7, n_group=3, topk_group=2,
        first_k_dense_replace=1, norm_topk_prob=False, rope_parameters=rope(partial_rotary_factor=0.5),
        num_nextn_predict_layers=0)),
    "glm4_moe_128": ("Glm4Moe", WIDE | dict(
        tie_word_embeddings=False, use_qk_norm=True, n_routed_experts=128, num_experts_per_tok=8, n_shared_experts=1,
        moe_intermediate_size=4, routed_scaling_factor=2.5, n_group=1, topk_group=1, first_k_dense_replace=1,
        norm_topk_prob=True, rope_parameters=rope(partial_rotary_factor=0.5), num_nextn_predict_layers=1)),
    "gpt_oss_odd": ("GptOss", ODD | dict(
        num_local_experts=5, num_experts_per_tok=2, sliding_window=37, intermediate_size=29, swiglu_limit=1.5,
        attention_bias=True, rope_parameters=GPT_OSS_ROPE | dict(factor=8.0, original_max_position_embeddings=32))),
    # Like the released model, with MXFP4 experts.
    "gpt_oss_64": ("GptOss", WIDE | dict(
        hidden_size=32, head_dim=64, num_attention_heads=8, num_key_value_heads=1, intermediate_size=64,
        num_local_experts=32, num_experts_per_tok=4, sliding_window=128, tie_word_embeddings=False,
        max_position_embeddings=131072, rope_parameters=GPT_OSS_ROPE)),
    "mpt_odd": ("Mpt", dict(
        vocab_size=131, d_model=42, n_heads=6, n_layers=3, max_seq_len=512, layer_norm_epsilon=1e-5,
        tie_word_embeddings=True, attn_config=dict(clip_qkv=1.5, softmax_scale=0.3))),
    "mpt_128": ("Mpt", dict(vocab_size=136, d_model=128, n_heads=1, n_layers=1, max_seq_len=512)),
    "deepseek_v2_odd": ("DeepseekV2", ODD_LATENT | dict(
        q_lora_rank=23, kv_lora_rank=20, qk_rope_head_dim=6, qk_nope_head_dim=10, v_head_dim=13, attention_bias=True,
        n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=19,
        routed_scaling_factor=1.7, topk_method="group_limited_greedy", n_group=3, topk_group=2,
        first_k_dense_replace=1, rope_parameters=rope(1000.0) | YARN | dict(mscale=0.707, mscale_all_dim=1.0))),
    # Half of DeepSeek-V2-Lite's head sizes and ranks.
    "deepseek_v2_256": ("DeepseekV2", WIDE_LATENT | dict(
        q_lora_rank=None, kv_lora_rank=256, qk_rope_head_dim=32, qk_nope_head_dim=64, v_head_dim=64,
        num_attention_heads=2, intermediate_size=64, n_routed_experts=64, num_experts_per_tok=6, n_shared_experts=2,
        moe_intermediate_size=4, routed_scaling_factor=1.0, topk_method="greedy", n_group=1, topk_group=1,
        first_k_dense_replace=1, tie_word_embeddings=False,
        rope_parameters=rope() | YARN | dict(mscale=0.707, mscale_all_dim=0.707))),
    "deepseek_v3_odd": ("DeepseekV3", ODD_LATENT | dict(
        num_key_value_heads=6,
        q_lora_rank=None, kv_lora_rank=20, qk_rope_head_dim=6, qk_nope_head_dim=10, v_head_dim=17, attention_bias=True,
        n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=19,
        routed_scaling_factor=1.7, n_group=3, topk_group=2, first_k_dense_replace=1, norm_topk_prob=False,
        rope_interleave=False, rope_parameters=rope(1000.0), num_mtp_layers=0)),
    # Half of DeepSeek-V3's head sizes and ranks.
    "deepseek_v3_256": ("DeepseekV3", WIDE_LATENT | dict(
        q_lora_rank=48, kv_lora_rank=256, qk_rope_head_dim=32, qk_nope_head_dim=64, v_head_dim=64,
        num_attention_heads=2, num_key_value_heads=2, intermediate_size=64, n_routed_experts=64, num_experts_per_tok=8,
        n_shared_experts=1,
        moe_intermediate_size=4, routed_scaling_factor=2.5, n_group=8, topk_group=4, norm_topk_prob=True,
        first_k_dense_replace=1, tie_word_embeddings=False, num_mtp_layers=1, scoring_func="sigmoid",
        rope_parameters=rope() | YARN | dict(mscale=1.0, mscale_all_dim=1.0))),
    # FP8 with a scale per 128 x 128 block: matrices of several blocks and of partial ones.
    "deepseek_v3_fp8": ("DeepseekV3", ODD_LATENT | dict(
        hidden_size=144, intermediate_size=160, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=2,
        q_lora_rank=140, kv_lora_rank=136, qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=40,
        n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=40, n_group=2,
        topk_group=1, first_k_dense_replace=1, num_mtp_layers=0)),
    # The text is as long as the context; up to there "dynamic" scales nothing.
    "llama_dynamic": ("Llama", ODD_HEADS | dict(
        num_hidden_layers=2, max_position_embeddings=make_tiny_llama.NUM_TOKENS,
        rope_parameters=dict(rope_type="dynamic", rope_theta=1000.0, factor=4.0))),
    # Models with images: the parameters are those of text_config.
    "gemma3_images_odd": ("Gemma3", ODD | dict(
        query_pre_attn_scalar=20, sliding_window=37,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
            "sliding_attention": rope(100.0)})),
    # The fields of the published 4B, with a small vocabulary, context and pattern.
    "gemma3_images_256": ("Gemma3", dict(
        vocab_size=136, hidden_size=16, intermediate_size=48, max_position_embeddings=512, model_type="gemma3_text",
        num_hidden_layers=2, rope_scaling={"factor": 8.0, "rope_type": "linear"}, sliding_window=64,
        sliding_window_pattern=2)),
    "exaone4_odd": ("Exaone4", ODD | dict(sliding_window=37, sliding_window_pattern=2)),
    # Like the 1.2B: no windows, and all layers use RoPE.
    "exaone4_128": ("Exaone4", WIDE | dict(
        sliding_window=None, sliding_window_pattern=None, layer_types=["full_attention"] * 2, rope_parameters=dict(
            rope_type="llama3", rope_theta=1e6, factor=16.0, high_freq_factor=4.0, low_freq_factor=1.0,
            original_max_position_embeddings=64))),
    "ernie4_5_odd": ("Ernie4_5", ODD | dict(use_bias=True)),
    # Like the 0.3B: eight heads share keys and values.
    "ernie4_5_128": ("Ernie4_5", WIDE | dict(
        hidden_size=32, num_attention_heads=8, rms_norm_eps=1e-5, rope_parameters=rope(500000.0))),
    "qwen35_odd": ("Qwen3_5Text", ODD | dict(
        layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=3,
        linear_num_value_heads=6, linear_key_head_dim=11, linear_value_head_dim=13, linear_conv_kernel_dim=3,
        attention_bias=True, rope_parameters=rope(1000.0, partial_rotary_factor=3 / 7, mrope_section=[1, 1, 1]))),
    # The real sizes of heads.
    "qwen35_128": ("Qwen3_5Text", WIDE | dict(
        hidden_size=32, head_dim=256, num_attention_heads=2, num_hidden_layers=4, linear_num_key_heads=1,
        linear_num_value_heads=2, linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4,
        rope_parameters=rope(1e7, partial_rotary_factor=0.25, mrope_section=[11, 11, 10], mrope_interleaved=True))),
}
FP8_BLOCK = 128

# Only for make_gguf.py: families whose models above have settings for which GGUF has no field.
GGUF_MODELS = {
    "qwen2_moe_gguf": ("Qwen2Moe", ODD_HEADS | QWEN_EXPERTS | dict(
        num_experts=7, num_experts_per_tok=3, shared_expert_intermediate_size=53, norm_topk_prob=False)),
    "gemma3_gguf": ("Gemma3Text", ODD | dict(
        query_pre_attn_scalar=14, sliding_window=37, num_hidden_layers=7, intermediate_size=24, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": rope(10000.0)})),
    "phi3_gguf": ("Phi3", ODD_HEADS | dict(
        sliding_window=37, original_max_position_embeddings=64, rope_parameters=rope() | LONG_ROPE | dict(
            short_factor=[1 + i / 5 for i in range(5)], long_factor=[1 + 3 * i for i in range(5)]))),
    "deepseek_v2_gguf": ("DeepseekV2", ODD_LATENT | dict(
        q_lora_rank=23, kv_lora_rank=20, qk_rope_head_dim=6, qk_nope_head_dim=10, v_head_dim=13, rms_norm_eps=1e-6,
        n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=19,
        routed_scaling_factor=1.7, topk_method="group_limited_greedy", n_group=3, topk_group=2,
        first_k_dense_replace=1, scoring_func="softmax",
        rope_parameters=rope(1000.0) | YARN | dict(mscale=0.707, mscale_all_dim=0.707))),
    "mpt_gguf": ("Mpt", dict(
        vocab_size=131, d_model=42, n_heads=6, n_layers=3, max_seq_len=512, layer_norm_epsilon=1e-5,
        tie_word_embeddings=True, attn_config=dict(clip_qkv=1.5))),
    "qwen35_gguf": ("Qwen3_5Text", ODD | dict(
        layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
        linear_num_value_heads=6, linear_key_head_dim=11, linear_value_head_dim=13,
        rope_parameters=rope(1000.0, partial_rotary_factor=3 / 7, mrope_section=[1, 1, 1]))),
}

# The parts of models with images besides text_config: a minimal vision part, and their own fields.
EYES = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
IMAGES = {
    "Gemma3": dict(vision_config=EYES | dict(model_type="siglip_vision_model"), mm_tokens_per_image=4,
                   boi_token_index=127, eoi_token_index=128, image_token_index=126),
}
# Saved with the published fields, without those that transformers adds.
PUBLISHED = ["gemma3_images_256"]

# Stored as MXFP4, like gpt-oss.
MXFP4 = ["gpt_oss_64"]


def randomize(model, seed: int) -> None:
    make_tiny_llama.randomize(model, seed)
    generator = torch.Generator().manual_seed(seed + 1000)
    for name, parameter in model.named_parameters():
        if model.config.model_type.startswith("gemma"):
            if name.endswith("norm.weight"):
                parameter.data -= 1  # stored minus 1
            if "embed_tokens" in name:
                parameter.data *= 0.2  # scaled up later, it would drown the layers' outputs
        if ".experts." in name:  # [experts, out, in]; of gpt-oss [experts, in, out], and biases
            noise = torch.randn(parameter.shape, generator=generator)
            inputs = parameter.shape[1 if model.config.model_type == "gpt_oss" else -1]
            parameter.data = noise * (0.3 if name.endswith("bias") else 1.5 / inputs ** 0.5)
        if model.config.model_type.startswith("qwen3_5"):
            if name.endswith("norm.weight") and "linear_attn" not in name:
                parameter.data -= 1  # stored minus 1
            if name.endswith("A_log"):
                parameter.data -= 2  # the states remember many tokens
        if model.config.model_type == "mpt":
            noise = torch.randn(parameter.shape, generator=generator)
            if ".norm_" in name:
                parameter.data = 1 + 0.3 * noise
            if name.endswith("wte.weight"):
                parameter.data = noise * 0.2
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator))
    biases = (b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias"))
    for values in [*model.parameters(), *biases]:
        values.data = values.data.to(torch.bfloat16).to(torch.float32)


def to_mxfp4(values):
    """Converts [experts, in, out] to MXFP4 blocks [experts, out, groups, 16] and scales [experts,
    out, groups]."""
    rows = values.transpose(1, 2)
    rows = rows.reshape(*rows.shape[:2], -1, 32)
    exponents = torch.floor(torch.log2(rows.abs().amax(dim=-1, keepdim=True))) - 2  # 6 = 1.5 · 2² is the largest
    levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = (rows.abs()[..., None] * 2.0 ** -exponents[..., None] - levels).abs().argmin(dim=-1)
    codes = (codes + 8 * (rows < 0)).to(torch.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, (exponents[..., 0] + 127).to(torch.uint8)


def round_experts_to_mxfp4(model) -> dict:
    """Rounds the experts to what transformers reads from their MXFP4 tensors; returns these by
    name."""
    stored = {}
    for name, parameter in model.named_parameters():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            blocks, scales = to_mxfp4(parameter.data)
            stored |= {name + "_blocks": blocks, name + "_scales": scales}
            parameter.data = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
    return stored


def save(model, directory: pathlib.Path, quantized: dict) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    weights = directory / "model.safetensors"
    weights.chmod(0o644)
    if not quantized:
        return
    tensors = {name: tensor for name, tensor in safetensors.torch.load_file(weights).items()
               if name + "_blocks" not in quantized}
    safetensors.torch.save_file(tensors | quantized, weights, metadata={"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = {
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                                   "lm_head"],
        "quant_method": "mxfp4"}
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def fp8_blocks(weight):
    """Returns a matrix in FP8, the scales of its blocks as in DeepSeek-V3, and the values that they
    represent, in bf16."""
    rows, cols = weight.shape
    scales = torch.empty(-(-rows // FP8_BLOCK), -(-cols // FP8_BLOCK))
    stored = torch.empty(rows, cols, dtype=torch.float8_e4m3fn)
    values = torch.empty(rows, cols)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = (slice(i * FP8_BLOCK, (i + 1) * FP8_BLOCK), slice(j * FP8_BLOCK, (j + 1) * FP8_BLOCK))
            scales[i, j] = weight[at].abs().max() / 448
            stored[at] = (weight[at] / scales[i, j]).to(torch.float8_e4m3fn)
            values[at] = stored[at].float() * scales[i, j]
    return stored, scales, values.to(torch.bfloat16)


def quantize(model, directory: pathlib.Path):
    """Converts a saved model to FP8. Returns the model with the values that it represents."""
    path = directory / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    stored = dict(tensors)
    for name, tensor in tensors.items():
        if not name.endswith("_proj.weight") and "kv_a_proj" not in name:
            continue
        stored[name], stored[name + "_scale_inv"], tensors[name] = fp8_blocks(tensor.float())
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    model = type(model).from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                        experts_implementation="eager").eval()
    safetensors.torch.save_file(stored, path, {"format": "pt"})
    path.chmod(0o644)
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = dict(
        activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=[FP8_BLOCK, FP8_BLOCK])
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return model


def make_model(name: str, family: str, parameters: dict):
    parameters = copy.deepcopy(parameters)
    ids = dict(bos_token_id=1, eos_token_id=1, pad_token_id=None)
    if family in IMAGES:
        outer = {} if name == "gemma3_images_256" else dict(tie_word_embeddings=False)
        config = getattr(transformers, family + "Config")(
            text_config=parameters, **copy.deepcopy(IMAGES[family]), **ids, **outer, attn_implementation="eager")
        return getattr(transformers, family + "ForConditionalGeneration")(config).to(torch.float32).eval()
    config = getattr(transformers, family + "Config")(
        **parameters, **ids, attn_implementation="eager", experts_implementation="eager")
    return getattr(transformers, family.removesuffix("Text") + "ForCausalLM")(config).to(torch.float32).eval()


def rearrange(model, directory: pathlib.Path, parameters: dict | None, outer: dict):
    """Rewrites a saved model with images, whose tensors have their published names: either adds the
    published fields (`parameters`), or changes the names to transformers' own. Returns the model
    that transformers reads from it."""
    path = directory / "model.safetensors"
    if parameters is None:
        names = {"language_model.lm_head.": "lm_head.", "language_model.model.": "model.language_model.",
                 "vision_tower.": "model.vision_tower.", "multi_modal_projector.": "model.multi_modal_projector."}
        tensors = {}
        for name, tensor in safetensors.torch.load_file(path).items():
            published = next(start for start in names if name.startswith(start))
            tensors[names[published] + name.removeprefix(published)] = tensor
        safetensors.torch.save_file(tensors, path, {"format": "pt"})
        path.chmod(0o644)
    else:
        config = outer | dict(architectures=[type(model).__name__], model_type=model.config.model_type,
                              text_config=parameters, torch_dtype="bfloat16", transformers_version="4.50.0.dev0")
        (directory / "config.json").write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")
    return type(model).from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()


# A model's seed is its place in the list, so new ones go to the end. These once had other places.
SEEDS = {"deepseek_v2_odd": 22, "deepseek_v2_256": 23, "deepseek_v3_odd": 24, "deepseek_v3_256": 25,
         "deepseek_v3_fp8": 26, "exaone4_odd": 36, "exaone4_128": 37, "ernie4_5_odd": 38, "ernie4_5_128": 39,
         "qwen35_128": 68}


def main() -> None:
    for place, (name, (family, parameters)) in [*enumerate(MODELS.items()), *enumerate(GGUF_MODELS.items(), 500)]:
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        seed = SEEDS.get(name, place)
        model = make_model(name, family, parameters)
        randomize(model, seed + 31)
        save(model, HERE / name, round_experts_to_mxfp4(model) if name in MXFP4 else {})
        if name.endswith("_fp8"):
            model = quantize(model, HERE / name)
        if family in IMAGES:
            model = rearrange(model, HERE / name, parameters if name in PUBLISHED else None, IMAGES[family])
        # LongRoPE's long factors apply to contexts beyond the original one.
        prompt = 80 if "long" in name or name == "phi3_gguf" else make_tiny_llama.PROMPT
        if "dynamic" in name:  # the answer ends at the context's end
            prompt = make_tiny_llama.NUM_TOKENS - make_tiny_llama.GENERATED
        make_tiny_llama.write_golden(model, f"hf/{name}", parameters, seed + 210, prompt, least_margin=1e-3)
    if not sys.argv[1:] or "phi3_switch" in sys.argv[1:]:
        # An answer that begins within the original context and ends beyond it.
        model = transformers.Phi3ForCausalLM.from_pretrained(HERE / "phi3_long", dtype=torch.float32,
                                                             attn_implementation="eager").eval()
        make_tiny_llama.write_golden(model, "hf/phi3_switch", MODELS["phi3_long"][1], 777, 40, least_margin=1e-3)


if __name__ == "__main__":
    main()
