"""Makes tiny random Llama checkpoints (llama_*.gguf, F32) and their goldens (llama_*.json).

The logits and greedy tokens are those of transformers' LlamaForCausalLM in float32 on a CPU. Norm
weights differ from 1 and biases from 0, and the texts are longer than every RoPE threshold, so that
any omission shows.

  python3 tests/golden/make_tiny_llama.py
"""

import json
import pathlib
import tempfile

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

import gguf_to_hf

HERE = pathlib.Path(__file__).parent
NUM_TOKENS = 256  # scored
PROMPT, GENERATED = 40, 64
TOP, RANDOM = 8, 8  # logits kept per position

MODELS = {
    # Sizes that no vector width divides, every bias, llama3 scaling.
    "llama_odd": dict(
        vocab_size=269, hidden_size=66, intermediate_size=101, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=3, head_dim=14, max_position_embeddings=512, rms_norm_eps=1e-5, attention_bias=True,
        mlp_bias=True, tie_word_embeddings=False,
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
    ),
    # Heads of 64, one KV head for four, tied embeddings, no biases.
    "llama_tied": dict(
        vocab_size=320, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, head_dim=64, max_position_embeddings=512, rms_norm_eps=1e-6, attention_bias=False,
        mlp_bias=False, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    # Heads of 128, as many KV heads, attention biases only, YaRN.
    "llama_yarn": dict(
        vocab_size=272, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=128, max_position_embeddings=512, rms_norm_eps=1e-5, attention_bias=True,
        mlp_bias=False, tie_word_embeddings=False,
        rope_parameters={
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 64},
    ),
}


def randomize(model: LlamaForCausalLM, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("norm.weight"):
            value = 1 + 0.3 * noise
        elif name.endswith("bias"):
            value = 0.3 * noise
        elif parameter.dim() == 1:  # sinks, and norms of other names
            value = noise
        elif "embed_tokens" in name:
            value = noise * (0.2 if model.config.tie_word_embeddings else 1.0)
        else:
            value = noise * (1.5 / parameter.shape[1] ** 0.5)
        parameter.data = value


def add_sizes(writer: gguf.GGUFWriter, name: str, c) -> None:
    writer.add_name(name)
    writer.add_vocab_size(c.vocab_size)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_key_length(c.head_dim)
    writer.add_value_length(c.head_dim)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)


def add_vocabulary(writer: gguf.GGUFWriter, vocab_size: int, pre_tokenizer: str) -> None:
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, "ab", "<|end|>"] + [f"<|extra_{i}|>" for i in range(vocab_size - 258)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * (len(tokens) - 257))
    writer.add_token_merges(["a b"])


def write_gguf(model: LlamaForCausalLM, path: pathlib.Path) -> None:
    c = model.config
    rope = c.rope_parameters
    writer = gguf.GGUFWriter(path, "llama")
    add_sizes(writer, path.stem, c)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "llama3":  # stored as a divisor per frequency
        plain = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding.compute_default_rope_parameters(c)[0]
        writer.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq).numpy())
    add_vocabulary(writer, c.vocab_size, "smollm")
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(257)
    names = {v: k for k, v in gguf_to_hf.LAYER_NAMES.items()}
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        parts = name.split(".")
        if name == "model.embed_tokens.weight":
            name = "token_embd.weight"
        elif name == "model.norm.weight":
            name = "output_norm.weight"
        elif name == "lm_head.weight":
            name = "output.weight"
        else:
            if parts[-2] == "q_proj":
                values = gguf_to_hf.permute(values, c.num_attention_heads)
            if parts[-2] == "k_proj":
                values = gguf_to_hf.permute(values, c.num_key_value_heads)
            name = f"blk.{parts[2]}.{names['.'.join(parts[3:-1])]}.{parts[-1]}"
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def divergence(logits, other, kept) -> float:
    """The mean over positions of KL(logits || other), with all ids that are not kept as one
    event."""
    total = 0.0
    for row, other_row, ids in zip(logits.double(), other.double(), kept):
        p, q = row.softmax(0), other_row.softmax(0)
        rest = torch.ones_like(p, dtype=torch.bool)
        rest[ids] = False
        p, q = (torch.cat([x[~rest], x[rest].sum()[None]]) for x in (p, q))
        total += float((p * (p / q).log()).sum())
    return total / len(logits)


def in_bf16(model, tokens, logits, kept) -> dict:
    """Measures how far transformers' own bfloat16 run of this model is from float32."""
    with tempfile.TemporaryDirectory() as directory:
        # Reloaded, not cast, so that RoPE's frequencies stay float32.
        model.save_pretrained(directory)
        rounded = type(model).from_pretrained(directory, dtype=torch.bfloat16, attn_implementation="eager",
                                              experts_implementation="eager").eval()
    other = rounded(input_ids=tokens[None]).logits[0].float()
    assert rounded.lm_head.weight.dtype == torch.bfloat16
    logprobs = logits.log_softmax(1) - other.log_softmax(1)
    return {"divergence": float(f"{divergence(logits, other, kept):.3g}"),
            "median": float(f"{torch.gather(logits - other, 1, kept).abs().median():.3g}"),
            "worst_logprob": float(f"{torch.gather(logprobs, 1, kept).abs().max():.3g}")}


@torch.no_grad()
def goldens(model: LlamaForCausalLM, seed: int, prompt_tokens: int) -> dict:
    generator = torch.Generator().manual_seed(seed)
    vocab = model.config.get_text_config().vocab_size
    tokens = torch.randint(0, vocab, (NUM_TOKENS,), generator=generator)
    logits = model(input_ids=tokens[None]).logits[0]
    top = torch.topk(logits, TOP).indices
    kept = torch.cat([top, torch.randint(0, vocab, (NUM_TOKENS, RANDOM), generator=generator)], dim=1)

    prompt = torch.randint(0, vocab, (prompt_tokens,), generator=generator)
    sequence, margins = prompt[None], []
    for _ in range(GENERATED):
        best = torch.topk(model(input_ids=sequence, use_cache=False).logits[0, -1], 2)
        margins.append(round(float(best.values[0] - best.values[1]), 5))
        sequence = torch.cat([sequence, best.indices[:1][None]], dim=1)
    return {
        "tokens": tokens.tolist(),
        "kept_ids": kept.tolist(),
        "kept_logits": [[round(v, 6) for v in row] for row in torch.gather(logits, 1, kept).tolist()],
        "logsumexp": [round(v, 6) for v in torch.logsumexp(logits, dim=1).tolist()],
        "prompt": prompt.tolist(),
        "greedy": sequence[0, prompt_tokens:].tolist(),
        "margins": margins,
        "bf16": in_bf16(model, tokens, logits, kept),
    }


def write_golden(model, name: str, parameters: dict, seed: int, prompt_tokens: int = PROMPT,
                 least_margin: float = 0) -> None:
    while min((golden := goldens(model, seed, prompt_tokens))["margins"]) < least_margin:
        seed += 1000
    golden = {
        "made_with": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager attention",
        "config": parameters | {"architectures": [type(model).__name__], "hidden_act": "silu"},
        **golden,
    }
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in golden.items())
    (HERE / f"{name}.json").write_text("{\n" + lines + "\n}\n")
    print(name, "smallest margin", min(golden["margins"]), "distinct greedy tokens", len(set(golden["greedy"])),
          "logits", max(max(r) for r in golden["kept_logits"]))


def main() -> None:
    for seed, (name, parameters) in enumerate(MODELS.items()):
        config = LlamaConfig(**parameters, bos_token_id=257, eos_token_id=257, attn_implementation="eager")
        model = LlamaForCausalLM(config).to(torch.float32).eval()
        randomize(model, seed + 1)
        write_gguf(model, HERE / f"{name}.gguf")
        write_golden(model, name, parameters, seed + 100)


if __name__ == "__main__":
    main()
