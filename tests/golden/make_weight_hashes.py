#!/usr/bin/env python3
"""Writes tests/golden/weights/smollm2_q4_1.txt: hashes of a model's weights in Hugging Face's
layout.

Made with gguf 0.19.0, numpy 2.4.6, Python 3.11 from SmolLM2-135M-Instruct.Q4_1.gguf (SHA-256 in the
first line). Usage: make_weight_hashes.py MODEL.gguf [OUTPUT]

A line per tensor: its Hugging Face name, type, shape, and a hash of its values as f32: the sum over
i of (bits of value i + 1) · (2i + 1) · 0x9e3779b97f4a7c15, modulo 2^64. The rows of Q and K, which
the file has interleaved, are in Hugging Face's order.
"""
import hashlib
import pathlib
import sys

import gguf
import numpy as np
from gguf.quants import dequantize


def hash_values(values):
    words = values.astype(np.float32).reshape(-1).view(np.uint32).astype(np.uint64)
    with np.errstate(over="ignore"):
        factors = (np.arange(words.size, dtype=np.uint64) * np.uint64(2) + np.uint64(1)) * np.uint64(
            0x9e3779b97f4a7c15)
        return int(((words + np.uint64(1)) * factors).sum(dtype=np.uint64))


def unpermute(rows, heads):
    shape = rows.shape
    return rows.reshape(heads, shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(shape)


def main():
    model = pathlib.Path(sys.argv[1])
    out = pathlib.Path(sys.argv[2] if len(sys.argv) > 2
                       else pathlib.Path(__file__).parent / "weights" / "smollm2_q4_1.txt")
    out.parent.mkdir(exist_ok=True)
    reader = gguf.GGUFReader(model)
    heads = reader.fields["llama.attention.head_count"].contents()
    kv_heads = reader.fields["llama.attention.head_count_kv"].contents()
    layers = reader.fields["llama.block_count"].contents()
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    hf_names = ["model.embed_tokens.weight", "model.norm.weight"]
    for layer in range(layers):
        hf_names += [f"model.layers.{layer}.{part}.weight" for part in (
            "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
            "self_attn.o_proj", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj",
            "mlp.down_proj")]
    assert len(hf_names) == len(tensors)
    lines = ["sha256 " + hashlib.sha256(model.read_bytes()).hexdigest()]
    for hf_name in hf_names:
        tensor = tensors[names.get_name(hf_name, try_suffixes=(".weight",))]
        values = dequantize(tensor.data, tensor.tensor_type)
        if ".q_proj" in hf_name:
            values = unpermute(values, heads)
        if ".k_proj" in hf_name:
            values = unpermute(values, kv_heads)
        shape = "x".join(str(size) for size in values.shape)
        lines.append(f"{hf_name} {tensor.tensor_type.name} {shape} {hash_values(values):016x}")
    out.write_text("\n".join(lines) + "\n")


main()
