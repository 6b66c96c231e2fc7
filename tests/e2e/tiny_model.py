"""Writes a Hugging Face directory with a tiny model: a Llama of one layer with random weights, a
vocabulary of the 256 bytes and an end token, and any chat template."""

import array
import json
import pathlib
import random
import struct
import sys

EOS = 256  # the ids below are the bytes
VOCAB = EOS + 1
HIDDEN, HEADS, FEED_FORWARD, CONTEXT = 64, 2, 128, 4096


def byte_letters():
    """GPT-2's letter for each byte: the byte itself if it is printable."""
    printed = {*range(ord('!'), ord('~') + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(b if b in printed else next(others)) for b in range(256)]


def write_weights(path, seed, idle_layers):
    rng = random.Random(seed)
    layer = {
        'input_layernorm': (HIDDEN,), 'post_attention_layernorm': (HIDDEN,),
        'self_attn.q_proj': (HIDDEN, HIDDEN), 'self_attn.k_proj': (HIDDEN, HIDDEN),
        'self_attn.v_proj': (HIDDEN, HIDDEN), 'self_attn.o_proj': (HIDDEN, HIDDEN),
        'mlp.gate_proj': (FEED_FORWARD, HIDDEN), 'mlp.up_proj': (FEED_FORWARD, HIDDEN),
        'mlp.down_proj': (HIDDEN, FEED_FORWARD)}
    shapes = {'model.embed_tokens.weight': (VOCAB, HIDDEN), 'model.norm.weight': (HIDDEN,)}
    for i in range(1 + idle_layers):
        shapes |= {f'model.layers.{i}.{name}.weight': shape for name, shape in layer.items()}
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        idle = 'layers' in name and '.layers.0.' not in name and ('o_proj' in name or 'down_proj' in name)
        deviation = 0 if idle else 0.1
        values = array.array('f', (rng.gauss(0, deviation) for _ in range(count)) if len(shape) > 1
                             else [1.0] * count)
        if sys.byteorder == 'big':
            values.byteswap()
        header[name] = {'dtype': 'F32', 'shape': shape,
                        'data_offsets': [len(data), len(data) + 4 * count]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack('<Q', len(text)) + text + data)


def write(folder, chat_template, seed=1, idle_layers=0):
    """The weights depend on the seed. Idle layers take time and change nothing."""
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    write_weights(folder / 'model.safetensors', seed, idle_layers)
    (folder / 'config.json').write_text(json.dumps({
        'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu',
        'torch_dtype': 'float32', 'tie_word_embeddings': True, 'eos_token_id': EOS,
        'vocab_size': VOCAB, 'hidden_size': HIDDEN, 'intermediate_size': FEED_FORWARD,
        'num_hidden_layers': 1 + idle_layers, 'num_attention_heads': HEADS, 'num_key_value_heads': HEADS,
        'max_position_embeddings': CONTEXT, 'rms_norm_eps': 1e-5, 'rope_theta': 10000.0}))
    end = {'id': EOS, 'content': '<end>', 'special': True, 'single_word': False, 'lstrip': False,
           'rstrip': False, 'normalized': False}
    (folder / 'tokenizer.json').write_text(json.dumps({
        'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [end],
        'normalizer': None, 'post_processor': None,
        'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True,
                          'use_regex': True},
        'decoder': {'type': 'ByteLevel', 'add_prefix_space': True, 'trim_offsets': True,
                    'use_regex': True},
        'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'fuse_unk': False,
                  'continuing_subword_prefix': None, 'end_of_word_suffix': None,
                  'vocab': {letter: b for b, letter in enumerate(byte_letters())} | {'<end>': EOS},
                  'merges': []}}))
    (folder / 'tokenizer_config.json').write_text(json.dumps({
        'tokenizer_class': 'GPT2Tokenizer', 'add_bos_token': False, 'eos_token': '<end>'}))
    (folder / 'chat_template.jinja').write_text(chat_template)
