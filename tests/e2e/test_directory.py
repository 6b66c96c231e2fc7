#!/usr/bin/env python3
"""Runs the real model from a Hugging Face directory: two safetensors files, tokenizer.json, a
template file and a file of sampling defaults. The directory is made from the GGUF file, so both
must give the same answers."""

import json
import os
import pathlib
import struct
import sys
import tempfile
import unittest

import support
from support import tokamak

try:
    import gguf
    import jinja2
    import numpy
    import tokenizers
except ImportError as missing:
    print(f'skipped: needs the Python package {missing.name}', file=sys.stderr)
    sys.exit(support.SKIPPED)

LAYER_NAMES = {
    'attn_norm': 'input_layernorm', 'attn_q': 'self_attn.q_proj', 'attn_k': 'self_attn.k_proj',
    'attn_v': 'self_attn.v_proj', 'attn_output': 'self_attn.o_proj',
    'ffn_norm': 'post_attention_layernorm', 'ffn_gate': 'mlp.gate_proj', 'ffn_up': 'mlp.up_proj',
    'ffn_down': 'mlp.down_proj'}
OTHER_NAMES = {'token_embd.weight': 'model.embed_tokens.weight', 'output_norm.weight': 'model.norm.weight'}


def half_split(rows, num_heads):
    """Llama's GGUF files store RoPE pairs next to each other, Hugging Face's in two halves."""
    pairs = rows.reshape(num_heads, -1, 2, rows.shape[-1])
    return numpy.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, values in tensors.items():
        header[name] = {'dtype': 'F32', 'shape': values.shape,
                        'data_offsets': [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    with open(path, 'wb') as out:
        out.write(struct.pack('<Q', len(text)) + text)
        for values in tensors.values():
            out.write(values.tobytes())


def write_tokenizer(fields, folder):
    tokens = fields['tokenizer.ggml.tokens'].contents()
    kinds = fields['tokenizer.ggml.token_type'].contents()
    merges = [tuple(m.split(' ')) for m in fields['tokenizer.ggml.merges'].contents()]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [t for t, kind in zip(tokens, kinds) if kind == gguf.TokenType.CONTROL])
    tokenizer.save(str(folder / 'tokenizer.json'))
    (folder / 'tokenizer_config.json').write_text(json.dumps({
        'tokenizer_class': 'GPT2Tokenizer', 'add_bos_token': False,
        'bos_token': tokens[fields['tokenizer.ggml.bos_token_id'].contents()],
        'eos_token': tokens[fields['tokenizer.ggml.eos_token_id'].contents()]}))
    (folder / 'chat_template.jinja').write_text(fields['tokenizer.chat_template'].contents())


def write_directory(path, folder):
    """Writes the GGUF file at `path` to `folder` as a Hugging Face directory in float32."""
    reader = gguf.GGUFReader(path)
    fields = reader.fields

    def field(name):
        return fields['llama.' + name].contents()

    heads = {'attn_q': field('attention.head_count'), 'attn_k': field('attention.head_count_kv')}
    shards = {'model-00001-of-00002.safetensors': {}, 'model-00002-of-00002.safetensors': {}}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        parts = tensor.name.split('.')
        first = True
        if parts[0] == 'blk':
            first = int(parts[1]) < 15
            if parts[2] in heads:
                values = half_split(values, heads[parts[2]])
            name = f'model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.{parts[3]}'
        else:
            name = OTHER_NAMES[tensor.name]
        shards[list(shards)[0 if first else 1]][name] = values
    for file, tensors in shards.items():
        write_safetensors(folder / file, tensors)
    (folder / 'model.safetensors.index.json').write_text(json.dumps({
        'metadata': {}, 'weight_map': {n: file for file, ts in shards.items() for n in ts}}))
    eos = fields['tokenizer.ggml.eos_token_id'].contents()
    (folder / 'config.json').write_text(json.dumps({
        'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu',
        'torch_dtype': 'float32', 'tie_word_embeddings': True, 'eos_token_id': eos,
        'vocab_size': len(fields['tokenizer.ggml.tokens'].contents()),
        'hidden_size': field('embedding_length'), 'intermediate_size': field('feed_forward_length'),
        'num_hidden_layers': field('block_count'),
        'num_attention_heads': heads['attn_q'], 'num_key_value_heads': heads['attn_k'],
        'max_position_embeddings': field('context_length'),
        'rms_norm_eps': float(numpy.float32(field('attention.layer_norm_rms_epsilon'))),
        'rope_theta': float(field('rope.freq_base'))}))
    (folder / 'generation_config.json').write_text(json.dumps({
        'do_sample': True, 'temperature': 0.25, 'top_k': 7, 'eos_token_id': eos}))
    write_tokenizer(fields, folder)


class Directory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix='tokamak-directory-'))
        cls.folder = os.path.join(folder, 'SmolLM2-135M-Instruct')
        os.mkdir(cls.folder)
        write_directory(support.model_path(), pathlib.Path(cls.folder))
        cls.goldens = json.loads(support.GOLDENS.read_text())

    def test_gives_the_golden_tokens(self):
        golden = self.goldens['greedy'][0]
        answer = json.loads(tokamak(
            'run', self.folder, '--precise', '--token-ids', ','.join(map(str, golden['prompt'])),
            '--temperature', '0', '--max-tokens', '8', '--json').stdout)
        expected = golden['tokens'][:golden['tokens'].index(2) + 1]
        self.assertEqual(answer['token_ids'], expected[:len(answer['token_ids'])])
        self.assertGreaterEqual(len(answer['token_ids']), len(expected) - 1)
        self.assertEqual(answer['finish_reason'], 'stop')

    def test_renders_and_tokenizes_as_the_file_does(self):
        text = 'Grüße, 東京! 12345 <|im_end|> \n\t x'
        chat = json.dumps([{'role': 'user', 'content': text}])
        models = self.folder, support.model_path()
        tokens = [tokamak('tokenize', m, '--string', text, '--json').stdout for m in models]
        self.assertEqual(tokens[0], tokens[1])
        rendered = [tokamak('render', m, stdin=chat).stdout for m in models]
        self.assertEqual(rendered[0], rendered[1])

    def test_chats_with_the_defaults_of_the_directory(self):
        with support.Server(model=self.folder) as server:
            status, answer = server.request('/v1/chat/completions', {
                'messages': [{'role': 'user', 'content': 'What is the capital of France?'}],
                'temperature': 0, 'max_tokens': 16})
            self.assertEqual(status, 200, answer)
            self.assertIn('Paris', answer['choices'][0]['message']['content'])
            models = server.request('/v1/models')[1]
        self.assertEqual(models['data'][0]['id'], 'SmolLM2-135M-Instruct')
        self.assertIn('0.25', ''.join(server.log))

    def test_the_template_for_tools_is_used_where_there_are_tools(self):
        folder = pathlib.Path(self.folder)
        sources = {
            False: (folder / 'chat_template.jinja').read_text(),
            True: '{% for t in tools %}<|im_start|>tool\n{{ t.function.name }}: '
                  '{{ t.function.description }}<|im_end|>\n{% endfor %}'
                  '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n'
                  '{% endfor %}<|im_start|>assistant\n'}
        (folder / 'additional_chat_templates').mkdir()
        (folder / 'additional_chat_templates' / 'tool_use.jinja').write_text(sources[True])
        messages = [{'role': 'user', 'content': 'How warm is it in Oslo?'}]
        tools = [{'type': 'function', 'function': {
            'name': 'weather', 'description': 'Tells the weather of a town.',
            'parameters': {'type': 'object', 'properties': {'town': {'type': 'string'}}}}}]
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / 'tokenizer.json'))
        jinja = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        counts = {}
        with support.Server(model=self.folder) as server:
            for with_tools, source in sources.items():
                body = {'messages': messages, 'max_tokens': 1}
                if with_tools:
                    body['tools'] = tools
                status, answer = server.request('/v1/chat/completions', body)
                self.assertEqual(status, 200, answer)
                text = jinja.from_string(source).render(
                    messages=messages, tools=tools, add_generation_prompt=True)
                counts[with_tools] = len(tokenizer.encode(text, add_special_tokens=False).ids)
                self.assertEqual(answer['usage']['prompt_tokens'], counts[with_tools])
        self.assertNotEqual(counts[False], counts[True])

    def test_inspects_and_plans(self):
        inspected = json.loads(tokamak('inspect', self.folder, '--json').stdout)
        self.assertEqual(len(inspected['files']), 2)
        self.assertEqual(inspected['totals']['F32']['tensors'], len(inspected['tensors']))
        planned = json.loads(tokamak('plan', self.folder, '--json').stdout)
        self.assertEqual(planned['parameters'],
                         sum(t['elements'] for t in inspected['totals'].values()))

    def test_a_missing_shard_is_named(self):
        gone = os.path.join(self.folder, 'model-00002-of-00002.safetensors')
        os.rename(gone, gone + '.gone')
        try:
            failed = tokamak('run', self.folder, '-p', 'x', check=False)
        finally:
            os.rename(gone + '.gone', gone)
        self.assertEqual(failed.returncode, 1)
        self.assertIn('model-00002-of-00002.safetensors', failed.stderr)


if __name__ == '__main__':
    support.main()
