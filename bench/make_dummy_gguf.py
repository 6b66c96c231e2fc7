#!/usr/bin/env python3
"""Writes a GGUF file of random weights for an architecture, to compare engines on large models without
a download. Needs numpy. Blocks are random in their stored form and nothing is quantized, so it writes
as fast as the disk.

  bench/make_dummy_gguf.py bench/configs/llama3.1-8b.json llama3.1-8b.Q4_K_M.gguf
  bench/make_dummy_gguf.py bench/configs/qwen3-30b-a3b.json qwen3-30b-a3b.Q4_K_M.gguf
  bench/make_dummy_gguf.py bench/configs/gpt-oss-20b.json gpt-oss-20b.MXFP4_MOE.gguf

A mix is what `llama-quantize` makes of a model under that name: the type of most matrices, and the
types of those that it stores with more bits. With --pure all matrices have the first type.
"""
import argparse
import json
import pathlib
import struct

import numpy as np

# The name in GGUF of Hugging Face's class.
ARCHITECTURES = {'LlamaForCausalLM': 'llama', 'Qwen3ForCausalLM': 'qwen3', 'Qwen3MoeForCausalLM': 'qwen3moe',
                 'GptOssForCausalLM': 'gpt-oss'}

DEVIATION = 0.02  # of all weights, roughly
POOL_BYTES = 8 << 20
ALIGNMENT = 32  # GGUF's default


def f16(values):
    """Returns the bytes of each value as a row."""
    return np.asarray(values, '<f2').view(np.uint8).reshape(-1, 2)


def pack_scales(scales, mins):
    """Packs eight 6-bit scales and mins per row as Q4_K and Q5_K do."""
    low = scales[:, :4] | (scales[:, 4:] >> 4 << 6)
    high = mins[:, :4] | (mins[:, 4:] >> 4 << 6)
    nibbles = (scales[:, 4:] & 15) | ((mins[:, 4:] & 15) << 4)
    return np.hstack([low, high, nibbles])


# Each function gets the generator, an array of blocks of random bytes, and the blocks' own deviations. It
# replaces the scales, so that the weights have these deviations and a mean near 0.

def plain_f32(random, blocks, deviation):
    blocks[:] = (deviation * random.standard_normal(len(blocks))).astype('<f4').view(np.uint8).reshape(-1, 4)


def plain_f16(random, blocks, deviation):
    blocks[:] = f16(deviation * random.standard_normal(len(blocks)))


def plain_bf16(random, blocks, deviation):
    values = (deviation * random.standard_normal(len(blocks))).astype('<f4')
    blocks[:] = values.view(np.uint8).reshape(-1, 4)[:, 2:]


def one_scale(deviation_of_codes):
    def fill(_, blocks, deviation):
        blocks[:, :2] = f16(deviation / deviation_of_codes)
    return fill


def scales_and_mins(mean_of_codes, deviation_of_codes):
    def fill(random, blocks, deviation):
        scales = random.integers(32, 64, (len(blocks), 8), np.uint8)
        d = deviation / (deviation_of_codes * 48)
        blocks[:, 0:2] = f16(d)
        blocks[:, 2:4] = f16(d * mean_of_codes)
        blocks[:, 4:16] = pack_scales(scales, scales)
    return fill


def q6_k(random, blocks, deviation):
    blocks[:, 192:208] = random.integers(64, 128, (len(blocks), 16), np.uint8)
    blocks[:, 208:210] = f16(deviation / (18.5 * 96))


def iq4_xs(random, blocks, deviation):
    # The high bits of every scale are 3: scales are 48 to 63, of which 32 is subtracted.
    blocks[:, 0:2] = f16(deviation / (71 * 24))
    blocks[:, 2:4] = 0xff


def mxfp4(random, blocks, _):
    blocks[:, 0] = random.integers(119, 121, len(blocks), np.uint8)


# name: number in GGUF, elements of a block, its bytes, what makes its scales sane.
TYPES = {
    'F32': (0, 1, 4, plain_f32),
    'F16': (1, 1, 2, plain_f16),
    'Q4_0': (2, 32, 18, one_scale(4.6)),
    'Q8_0': (8, 32, 34, one_scale(73.9)),
    'Q4_K': (12, 256, 144, scales_and_mins(7.5, 4.6)),
    'Q5_K': (13, 256, 176, scales_and_mins(15.5, 9.2)),
    'Q6_K': (14, 256, 210, q6_k),
    'IQ4_XS': (23, 256, 136, iq4_xs),
    'BF16': (30, 1, 2, plain_bf16),
    'MXFP4': (39, 32, 17, mxfp4),
}

# name: llama.cpp's number of it, the type of most matrices, that of the output layer.
MIXES = {
    'F16': (1, 'F16', 'F16'),
    'BF16': (32, 'BF16', 'BF16'),
    'Q4_0': (2, 'Q4_0', 'Q6_K'),
    'Q8_0': (7, 'Q8_0', 'Q8_0'),
    'Q4_K_M': (15, 'Q4_K', 'Q6_K'),
    'Q5_K_M': (17, 'Q5_K', 'Q6_K'),
    'IQ4_XS': (30, 'IQ4_XS', 'Q6_K'),
    'MXFP4_MOE': (38, 'MXFP4', 'Q8_0'),
}


def type_of(mix, pure, tensor, layer, layers, grouped, tied):
    """Returns the type of a matrix as llama.cpp chooses it (llama_tensor_get_type). `grouped`: at least
    four heads share a KV head."""
    _, base, output = MIXES[mix]
    if 'gate_inp' in tensor or 'sinks' in tensor or tensor.endswith('.bias'):
        return 'F32'
    if pure:
        return base
    if tensor == 'output.weight' or (tied and tensor == 'token_embd.weight'):
        return output
    if mix == 'MXFP4_MOE':
        return 'MXFP4' if '_exps' in tensor else 'Q8_0'
    value, down = 'attn_v' in tensor, 'ffn_down' in tensor
    eighth = layers // 8
    if mix in ('Q4_K_M', 'Q5_K_M') and (value or down):
        more = layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2
        return 'Q6_K' if more else base
    if mix == 'IQ4_XS' and ((value and grouped) or (down and layer < eighth)):
        return 'Q5_K'
    return base


def experts_of(c):
    """Returns the number of experts and their inner size; None without experts."""
    count = c.get('num_experts') or c.get('num_local_experts')
    return (count, c.get('moe_intermediate_size') or c['intermediate_size']) if count else None


def feed_forward(c):
    """Yields (name, shape of the weight, size of the bias) of a layer's feed-forward matrices."""
    hidden, inner = c['hidden_size'], c['intermediate_size']
    if not experts_of(c):
        yield 'ffn_gate', (inner, hidden), (inner,)
        yield 'ffn_up', (inner, hidden), (inner,)
        yield 'ffn_down', (hidden, inner), (hidden,)
        return
    experts, small = experts_of(c)
    yield 'ffn_gate_inp', (experts, hidden), (experts,)
    yield 'ffn_gate_exps', (experts, small, hidden), (experts, small)
    yield 'ffn_up_exps', (experts, small, hidden), (experts, small)
    yield 'ffn_down_exps', (experts, hidden, small), (experts, hidden)


def shapes(c, name):
    """Yields (tensor, layer, shape in numpy's order, whether it is a norm) for the whole model."""
    hidden, head = c['hidden_size'], c['head_dim']
    heads, kv = c['num_attention_heads'], c['num_key_value_heads']
    yield 'token_embd.weight', 0, (c['vocab_size'], hidden), False
    yield 'output_norm.weight', 0, (hidden,), True
    if not c.get('tie_word_embeddings'):
        yield 'output.weight', 0, (c['vocab_size'], hidden), False
    for i in range(c['num_hidden_layers']):
        block = f'blk.{i}.'
        yield block + 'attn_norm.weight', i, (hidden,), True
        yield block + ('post_attention_norm' if name == 'gpt-oss' else 'ffn_norm') + '.weight', i, (hidden,), True
        if name.startswith('qwen3'):
            yield block + 'attn_q_norm.weight', i, (head,), True
            yield block + 'attn_k_norm.weight', i, (head,), True
        if name == 'gpt-oss':
            yield block + 'attn_sinks.weight', i, (heads,), False
        for matrix, shape, bias in (
                ('attn_q', (heads * head, hidden), (heads * head,)),
                ('attn_k', (kv * head, hidden), (kv * head,)),
                ('attn_v', (kv * head, hidden), (kv * head,)),
                ('attn_output', (hidden, heads * head), (hidden,)),
                *feed_forward(c)):
            yield f'{block}{matrix}.weight', i, shape, False
            if name == 'gpt-oss':
                yield f'{block}{matrix}.bias', i, bias, False


class Header:
    """Encodes GGUF's metadata (version 3, little-endian)."""
    U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9

    def __init__(self):
        self.count, self.parts = 0, []

    @staticmethod
    def string(text):
        data = text.encode()
        return struct.pack('<Q', len(data)) + data

    def value(self, kind, value):
        return self.string(value) if kind == self.STRING else struct.pack(
            {self.U32: '<I', self.I32: '<i', self.F32: '<f'}[kind], value)

    def add(self, key, kind, value):
        self.count += 1
        self.parts += [self.string(key), struct.pack('<I', kind), self.value(kind, value)]

    def add_array(self, key, kind, values):
        self.count += 1
        self.parts += [self.string(key), struct.pack('<IIQ', self.ARRAY, kind, len(values))]
        self.parts += [self.value(kind, value) for value in values]


def metadata(c, name, title, file_type):
    header = Header()
    for key, kind, value in (
            ('general.architecture', Header.STRING, name),
            ('general.name', Header.STRING, title),
            ('general.file_type', Header.U32, file_type),
            ('general.quantization_version', Header.U32, 2)):
        header.add(key, kind, value)
    keys = {'vocab_size': c['vocab_size'], 'context_length': c['max_position_embeddings'],
            'embedding_length': c['hidden_size'], 'block_count': c['num_hidden_layers'],
            'feed_forward_length': c['intermediate_size'],
            'attention.head_count': c['num_attention_heads'],
            'attention.head_count_kv': c['num_key_value_heads'],
            'attention.key_length': c['head_dim'], 'attention.value_length': c['head_dim'],
            'attention.layer_norm_rms_epsilon': float(c['rms_norm_eps']),
            'rope.freq_base': float(c['rope_theta'])}
    if name == 'llama':
        keys['rope.dimension_count'] = c['head_dim']
    if experts_of(c):
        count, small = experts_of(c)
        keys.update({'expert_count': count, 'expert_used_count': c['num_experts_per_tok'],
                     'expert_feed_forward_length': small})
    if c.get('sliding_window'):
        keys['attention.sliding_window'] = c['sliding_window']
    if c.get('rope_scaling'):
        scaling = c['rope_scaling']
        header.add(f'{name}.rope.scaling.type', Header.STRING, scaling['rope_type'])
        keys.update({'rope.scaling.factor': float(scaling['factor']),
                     'rope.scaling.original_context_length': scaling['original_max_position_embeddings']})
    for key, value in keys.items():
        header.add(f'{name}.{key}', Header.F32 if isinstance(value, float) else Header.U32, value)
    # A byte-level vocabulary of the right size; benchmarks do not use it.
    normal, control = 1, 3
    others = c['vocab_size'] - 256
    header.add('tokenizer.ggml.model', Header.STRING, 'gpt2')
    header.add('tokenizer.ggml.pre', Header.STRING, 'qwen2')
    header.add_array('tokenizer.ggml.tokens', Header.STRING,
                     [chr(0x100 + i) for i in range(256)] + [f'<|{i}|>' for i in range(others)])
    header.add_array('tokenizer.ggml.token_type', Header.I32, [normal] * 256 + [control] * others)
    header.add_array('tokenizer.ggml.merges', Header.STRING, ['a b'])
    header.add('tokenizer.ggml.eos_token_id', Header.U32, 256)
    return header


def bytes_of(kind, shape):
    _, elements, size, _ = TYPES[kind]
    if shape[-1] % elements:
        raise SystemExit(f'rows of {shape[-1]} are no whole blocks of {kind} ({elements})')
    return int(np.prod(shape)) // elements * size


def random_blocks(random, kind, count):
    _, _, size, fill = TYPES[kind]
    blocks = random.integers(0, 256, (count, size), np.uint8)
    # Blocks differ by half in the size of their weights.
    fill(random, blocks, DEVIATION * random.uniform(0.75, 1.25, count))
    return blocks.reshape(-1)


def write_random(file, random, pools, kind, size):
    """Writes `size` bytes of random blocks. A few megabytes of each type are repeated in all tensors,
    which does not change the speed."""
    block = TYPES[kind][2]
    if kind == 'F32':  # a router: repeated rows would be equal experts
        file.write(random_blocks(random, kind, size // block))
        return
    if kind not in pools:
        pools[kind] = random_blocks(random, kind, POOL_BYTES // block)
    pool = pools[kind]
    at = int(random.integers(pool.size // block)) * block
    while size > 0:
        part = pool[at:at + size]
        file.write(part)
        size -= part.size
        at = 0


def write(c, path, mix='F16', pure=False):
    name = ARCHITECTURES[c['architectures'][0]]
    c.setdefault('head_dim', c['hidden_size'] // c['num_attention_heads'])
    tied = bool(c.get('tie_word_embeddings'))
    grouped = c['num_attention_heads'] >= 4 * c['num_key_value_heads']
    tensors = []
    for tensor, layer, shape, is_norm in shapes(c, name):
        kind = 'F32' if is_norm else type_of(mix, pure, tensor, layer, c['num_hidden_layers'], grouped, tied)
        tensors.append((tensor, shape, is_norm, kind, bytes_of(kind, shape)))

    header = metadata(c, name, path.stem, MIXES[mix][0])
    offset, infos = 0, []
    for tensor, shape, _, kind, size in tensors:
        infos.append(Header.string(tensor) + struct.pack(
            f'<I{len(shape)}QIQ', len(shape), *reversed(shape), TYPES[kind][0], offset))
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    random, pools = np.random.default_rng(0), {}
    with open(path, 'wb') as file:
        def align():
            file.write(bytes(-file.tell() % ALIGNMENT))

        file.write(b'GGUF' + struct.pack('<IQQ', 3, len(tensors), header.count))
        file.write(b''.join(header.parts + infos))
        align()
        for _, shape, is_norm, kind, size in tensors:
            if is_norm:
                file.write(np.ones(shape, '<f4'))
            else:
                write_random(file, random, pools, kind, size)
            align()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', type=pathlib.Path, help='config.json as Hugging Face has it')
    parser.add_argument('output', type=pathlib.Path)
    parser.add_argument('--mix', choices=MIXES, help='default: what the output is named after, as in '
                        'name.Q4_K_M.gguf, else F16')
    parser.add_argument('--pure', action='store_true')
    args = parser.parse_args()
    named = args.output.stem.rpartition('.')[2]
    mix = args.mix or (named if named in MIXES else 'F16')
    write(json.loads(args.config.read_text()), args.output, mix, args.pure)


if __name__ == '__main__':
    main()
