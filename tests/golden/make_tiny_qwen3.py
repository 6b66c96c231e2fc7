"""Makes tiny random Qwen3 checkpoints (qwen3_*.gguf, F32) and their goldens (qwen3_*.json), dense
and with experts, as make_tiny_llama.py does for Llama.

  python3 tests/golden/make_tiny_qwen3.py
"""

import pathlib

import gguf
import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

import make_tiny_llama

HERE = pathlib.Path(__file__).parent
ROPE = {"rope_type": "default", "rope_theta": 10000.0}

# Name: (model class, configuration class, architecture in GGUF, parameters).
MODELS = {
    # Sizes that no vector width divides.
    "qwen3_odd": (Qwen3ForCausalLM, Qwen3Config, "qwen3", dict(
        vocab_size=269, hidden_size=66, intermediate_size=101, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=3, head_dim=14, max_position_embeddings=512, rms_norm_eps=1e-5,
        tie_word_embeddings=False, rope_parameters=ROPE)),
    # Heads of 128, like Qwen3, and tied embeddings.
    "qwen3_tied": (Qwen3ForCausalLM, Qwen3Config, "qwen3", dict(
        vocab_size=272, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=128, max_position_embeddings=512, rms_norm_eps=1e-6,
        tie_word_embeddings=True, rope_parameters=ROPE)),
    # 7 experts of an odd size; each token uses 3.
    "qwen3_moe_odd": (Qwen3MoeForCausalLM, Qwen3MoeConfig, "qwen3moe", dict(
        vocab_size=269, hidden_size=66, intermediate_size=101, moe_intermediate_size=37, num_experts=7,
        num_experts_per_tok=3, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=3, head_dim=14, max_position_embeddings=512, rms_norm_eps=1e-5,
        tie_word_embeddings=False, rope_parameters=ROPE)),
    # Qwen3's own numbers of experts: 128, of which 8 are used.
    "qwen3_moe_128": (Qwen3MoeForCausalLM, Qwen3MoeConfig, "qwen3moe", dict(
        vocab_size=272, hidden_size=32, intermediate_size=64, moe_intermediate_size=6, num_experts=128,
        num_experts_per_tok=8, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=128, max_position_embeddings=512, rms_norm_eps=1e-6,
        tie_word_embeddings=False, rope_parameters=ROPE)),
}

NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
}


def randomize(model, seed: int) -> None:
    make_tiny_llama.randomize(model, seed)
    generator = torch.Generator().manual_seed(seed + 1000)
    for name, parameter in model.named_parameters():
        if ".experts." in name:  # [experts, out, in]
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.data = noise * (1.5 / parameter.shape[2] ** 0.5)


def tensors(model):
    """Yields the file's names and values."""
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
           "lm_head.weight": "output.weight"}
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        if name in top:
            yield top[name], values
            continue
        parts = name.split(".")
        block = f"blk.{parts[2]}"
        rest = ".".join(parts[3:])
        if rest == "mlp.experts.gate_up_proj":
            size = values.shape[1] // 2
            yield f"{block}.ffn_gate_exps.weight", values[:, :size]
            yield f"{block}.ffn_up_exps.weight", values[:, size:]
        elif rest == "mlp.experts.down_proj":
            yield f"{block}.ffn_down_exps.weight", values
        else:
            yield f"{block}.{NAMES['.'.join(parts[3:-1])]}.{parts[-1]}", values


def write_gguf(model, architecture: str, path: pathlib.Path, add_more=lambda writer: None) -> None:
    c = model.config
    writer = gguf.GGUFWriter(path, architecture)
    make_tiny_llama.add_sizes(writer, path.stem, c)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    if architecture == "qwen3moe":
        writer.add_expert_count(c.num_experts)
        writer.add_expert_used_count(c.num_experts_per_tok)
        writer.add_expert_feed_forward_length(c.moe_intermediate_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    make_tiny_llama.add_vocabulary(writer, c.vocab_size, "qwen2")
    writer.add_eos_token_id(257)
    add_more(writer)
    for name, values in tensors(model):
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    for seed, (name, (model_class, config_class, architecture, parameters)) in enumerate(MODELS.items()):
        config = config_class(**parameters, eos_token_id=257, attn_implementation="eager", experts_implementation="eager")
        model = model_class(config).to(torch.float32).eval()
        randomize(model, seed + 11)
        write_gguf(model, architecture, HERE / f"{name}.gguf")
        make_tiny_llama.write_golden(model, name, parameters, seed + 110)


if __name__ == "__main__":
    main()
