"""Loads a Llama GGUF file into a transformers model in float32, dequantized by the gguf package."""

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def permute(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Half-split to interleaved RoPE pairs: what converters to GGUF do to q_proj and k_proj."""
    shape = rows.shape
    return rows.reshape(num_heads, 2, shape[0] // num_heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def unpermute(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Interleaved back to half-split RoPE pairs."""
    shape = rows.shape
    return rows.reshape(num_heads, shape[0] // num_heads // 2, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def load_model(path: str) -> LlamaForCausalLM:
    reader = gguf.GGUFReader(path)

    def field(name):
        return reader.fields[f"llama.{name}"].contents()

    config = LlamaConfig(
        vocab_size=field("vocab_size"),
        hidden_size=field("embedding_length"),
        intermediate_size=field("feed_forward_length"),
        num_hidden_layers=field("block_count"),
        num_attention_heads=field("attention.head_count"),
        num_key_value_heads=field("attention.head_count_kv"),
        max_position_embeddings=field("context_length"),
        rms_norm_eps=float(np.float32(field("attention.layer_norm_rms_epsilon"))),
        rope_parameters={"rope_type": "default", "rope_theta": float(field("rope.freq_base"))},
        tie_word_embeddings=not any(t.name == "output.weight" for t in reader.tensors),
        attn_implementation="eager",
    )
    state = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        parts = tensor.name.split(".")
        if parts[0] == "blk":
            if parts[2] == "attn_q":
                values = unpermute(values, config.num_attention_heads)
            if parts[2] == "attn_k":
                values = unpermute(values, config.num_key_value_heads)
            name = f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.{parts[3]}"
        else:
            name = {
                "token_embd.weight": "model.embed_tokens.weight",
                "output_norm.weight": "model.norm.weight",
                "output.weight": "lm_head.weight",
            }[tensor.name]
        state[name] = torch.from_numpy(np.ascontiguousarray(values))
    model = LlamaForCausalLM(config).to(torch.float32).eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    return model


def load_tokenizer(path: str) -> Tokenizer:
    """The SmolLM2 tokenizer (byte-level BPE, single digits) from the file's metadata."""
    reader = gguf.GGUFReader(path)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == gguf.TokenType.CONTROL])
    return tokenizer
