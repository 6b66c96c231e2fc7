"""Makes rope.json: for every RoPE scaling the frequencies, the attention factor and some cosines
and sines, as transformers computes them.

  python3 tests/golden/make_rope.py
"""

import json
import pathlib

import torch
import transformers
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

# name: (head_dim, max_position_embeddings, context, rope_parameters)
LONG = [1.0 + 0.25 * i for i in range(24)]
SHORT = [1.0 + 0.01 * i for i in range(24)]
CASES = {
    "default": (64, 8192, 8192, {"rope_type": "default", "rope_theta": 100000.0}),
    "default_odd": (14, 512, 512, {"rope_type": "default", "rope_theta": 500.0}),
    "linear": (128, 16384, 16384, {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    "dynamic": (64, 2048, 2048, {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}),
    "llama3": (128, 131072, 131072, {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}),
    "llama3_small": (64, 131072, 131072, {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}),
    "yarn": (128, 131072, 131072, {
        "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 32768}),
    "yarn_betas": (64, 131072, 131072, {
        "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "original_max_position_embeddings": 4096,
        "beta_fast": 24.0, "beta_slow": 2.0, "truncate": False}),
    "yarn_mscale": (64, 163840, 163840, {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "original_max_position_embeddings": 4096,
        "mscale": 1.0, "mscale_all_dim": 0.707}),
    "yarn_attention_factor": (64, 131072, 131072, {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 32.0, "original_max_position_embeddings": 4096,
        "attention_factor": 1.5}),
    "longrope_short": (48, 131072, 4096, {
        "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 4096,
        "short_factor": SHORT, "long_factor": LONG}),
    "longrope_long": (48, 131072, 131072, {
        "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 4096,
        "short_factor": SHORT, "long_factor": LONG}),
}


@torch.no_grad()
def golden(head_dim: int, max_positions: int, context: int, rope: dict) -> dict:
    config = LlamaConfig(
        hidden_size=head_dim, num_attention_heads=1, head_dim=head_dim, max_position_embeddings=max_positions,
        rope_parameters=dict(rope))
    embedding = LlamaRotaryEmbedding(config)
    positions = sorted({0, 1, 2, 17, 100, context // 3, context // 2, context - 1})
    # The last position is the length that the scaling uses.
    cos, sin = embedding(torch.zeros(1), torch.tensor([positions]))
    half = head_dim // 2
    return {
        "head_dim": head_dim, "max_position_embeddings": max_positions, "context": context, "rope_parameters": rope,
        "frequencies": embedding.inv_freq.tolist(), "attention_factor": float(embedding.attention_scaling),
        "positions": positions,
        "cos": [[round(v, 7) for v in row[:half]] for row in cos[0].tolist()],
        "sin": [[round(v, 7) for v in row[:half]] for row in sin[0].tolist()],
    }


def main() -> None:
    cases = {name: golden(*case) for name, case in CASES.items()}
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in cases.items())
    made = json.dumps(f"transformers {transformers.__version__}, torch {torch.__version__}")
    pathlib.Path(__file__).with_name("rope.json").write_text(f'{{\n "made_with": {made},\n{lines}\n}}\n')


if __name__ == "__main__":
    main()
