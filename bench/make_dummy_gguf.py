#!/usr/bin/env python3
"""Writes a GGUF file of random weights (F16) for an architecture, to compare engines on large
models without a download. Needs the Python packages gguf and numpy.

  bench/make_dummy_gguf.py bench/configs/llama-1.5b.json llama-1.5b.F16.gguf
  llama-quantize --pure llama-1.5b.F16.gguf llama-1.5b.Q4_K.gguf Q4_K
"""
import argparse
import json
import pathlib

import gguf
import numpy as np

# The name in GGUF of Hugging Face's class.
ARCHITECTURES = {'LlamaForCausalLM': 'llama', 'Qwen3ForCausalLM': 'qwen3', 'Qwen3MoeForCausalLM': 'qwen3moe'}


def shapes(c, name):
    """Yields (tensor, shape in numpy's order, whether it is a norm) for the whole model."""
    hidden, inner, head = c['hidden_size'], c['intermediate_size'], c['head_dim']
    heads, kv = c['num_attention_heads'], c['num_key_value_heads']
    yield 'token_embd.weight', (c['vocab_size'], hidden), False
    yield 'output_norm.weight', (hidden,), True
    if not c.get('tie_word_embeddings'):
        yield 'output.weight', (c['vocab_size'], hidden), False
    for i in range(c['num_hidden_layers']):
        block = f'blk.{i}.'
        yield block + 'attn_norm.weight', (hidden,), True
        yield block + 'attn_q.weight', (heads * head, hidden), False
        yield block + 'attn_k.weight', (kv * head, hidden), False
        yield block + 'attn_v.weight', (kv * head, hidden), False
        yield block + 'attn_output.weight', (hidden, heads * head), False
        yield block + 'ffn_norm.weight', (hidden,), True
        if name != 'llama':
            yield block + 'attn_q_norm.weight', (head,), True
            yield block + 'attn_k_norm.weight', (head,), True
        if name == 'qwen3moe':
            experts, small = c['num_experts'], c['moe_intermediate_size']
            yield block + 'ffn_gate_inp.weight', (experts, hidden), False
            yield block + 'ffn_gate_exps.weight', (experts, small, hidden), False
            yield block + 'ffn_up_exps.weight', (experts, small, hidden), False
            yield block + 'ffn_down_exps.weight', (experts, hidden, small), False
        else:
            yield block + 'ffn_gate.weight', (inner, hidden), False
            yield block + 'ffn_up.weight', (inner, hidden), False
            yield block + 'ffn_down.weight', (hidden, inner), False


def write(c, path):
    name = ARCHITECTURES[c['architectures'][0]]
    c.setdefault('head_dim', c['hidden_size'] // c['num_attention_heads'])
    writer = gguf.GGUFWriter(path, name)
    writer.add_name(path.stem)
    writer.add_vocab_size(c['vocab_size'])
    writer.add_context_length(c['max_position_embeddings'])
    writer.add_embedding_length(c['hidden_size'])
    writer.add_block_count(c['num_hidden_layers'])
    writer.add_feed_forward_length(c['intermediate_size'])
    writer.add_head_count(c['num_attention_heads'])
    writer.add_head_count_kv(c['num_key_value_heads'])
    writer.add_key_length(c['head_dim'])
    writer.add_value_length(c['head_dim'])
    writer.add_layer_norm_rms_eps(c['rms_norm_eps'])
    writer.add_rope_freq_base(c['rope_theta'])
    if name == 'llama':
        writer.add_rope_dimension_count(c['head_dim'])
    if name == 'qwen3moe':
        writer.add_expert_count(c['num_experts'])
        writer.add_expert_used_count(c['num_experts_per_tok'])
        writer.add_expert_feed_forward_length(c['moe_intermediate_size'])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    # A byte-level vocabulary of the right size; benchmarks do not use it.
    writer.add_tokenizer_model('gpt2')
    writer.add_tokenizer_pre('qwen2')
    tokens = [chr(0x100 + i) for i in range(256)] + [f'<|{i}|>' for i in range(c['vocab_size'] - 256)]
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * (len(tokens) - 256))
    writer.add_token_merges(['a b'])
    writer.add_eos_token_id(256)

    random = np.random.default_rng(0)
    # A few megabytes of random values are repeated in all tensors, which does not change the speed.
    pool = (0.02 * random.standard_normal(1 << 22)).astype(np.float16)
    for tensor, shape, is_norm in shapes(c, name):
        if is_norm:
            writer.add_tensor(tensor, np.ones(shape, np.float32))
        else:
            dtype = np.float32 if 'gate_inp' in tensor else np.float16
            count = int(np.prod(shape))
            start = int(random.integers(pool.size))
            values = np.take(pool, np.arange(start, start + count), mode='wrap')
            writer.add_tensor(tensor, values.reshape(shape).astype(dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', type=pathlib.Path, help='config.json as Hugging Face has it')
    parser.add_argument('output', type=pathlib.Path)
    args = parser.parse_args()
    write(json.loads(args.config.read_text()), args.output)


if __name__ == '__main__':
    main()
