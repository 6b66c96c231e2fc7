#!/usr/bin/env python3
"""Checks the files that bench/make_dummy_gguf.py writes: the binary runs them, and the Python package
gguf reads the intended types and weights of the intended size."""

import json
import pathlib
import sys
import tempfile
import unittest

import support
from support import tokamak

try:
    import gguf
    import numpy  # noqa: F401
except ImportError as missing:
    print(f'skipped: needs the Python package {missing.name}', file=sys.stderr)
    sys.exit(support.SKIPPED)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'bench'))
import make_dummy_gguf as maker

DENSE = {'architectures': ['LlamaForCausalLM'], 'vocab_size': 512, 'hidden_size': 256,
         'intermediate_size': 512, 'num_hidden_layers': 16, 'num_attention_heads': 4,
         'num_key_value_heads': 1, 'max_position_embeddings': 512, 'rms_norm_eps': 1e-5, 'rope_theta': 1e4}
MOE = dict(DENSE, architectures=['Qwen3MoeForCausalLM'], head_dim=64, num_experts=8,
           num_experts_per_tok=2, moe_intermediate_size=256, num_hidden_layers=2)
GPT_OSS = dict(DENSE, architectures=['GptOssForCausalLM'], head_dim=64, num_local_experts=8, num_experts_per_tok=2,
               num_hidden_layers=2, sliding_window=32,
               rope_scaling={'rope_type': 'yarn', 'factor': 32, 'original_max_position_embeddings': 64})


class DummyGguf(unittest.TestCase):
    def make(self, config, **options):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / 'dummy.gguf'
        maker.write(dict(config), path, **options)
        return path

    def types(self, path):
        return {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}

    def test_the_binary_runs_every_mix(self):
        for config, mix in [(DENSE, mix) for mix in maker.MIXES] + [(MOE, 'Q4_K_M'), (MOE, 'MXFP4_MOE'),
                                                                      (GPT_OSS, 'MXFP4_MOE')]:
            with self.subTest(mix=mix, model=config['architectures']):
                done = tokamak('run', self.make(config, mix=mix), '--token-ids', '1,2,3', '--max-tokens', '2',
                               '--ignore-eos', '--temperature', '0', '--device', 'cpu', '--threads', '1',
                               '--json')
                self.assertEqual(len(json.loads(done.stdout)['token_ids']), 2)

    def test_weights_have_the_intended_size(self):
        for mix in maker.MIXES:
            with self.subTest(mix=mix):
                for tensor in gguf.GGUFReader(self.make(DENSE, mix=mix, pure=True)).tensors:
                    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                    if 'norm' in tensor.name:
                        self.assertTrue((values == 1).all(), tensor.name)
                    else:
                        self.assertLess(abs(values.std() / maker.DEVIATION - 1), 0.25, tensor.name)
                        self.assertLess(abs(values.mean()), 0.15 * maker.DEVIATION, tensor.name)

    def test_matrices_have_the_types_that_llama_quantize_gives_them(self):
        types = self.types(self.make(DENSE, mix='Q4_K_M'))
        more = [i for i in range(16) if types[f'blk.{i}.ffn_down.weight'] == 'Q6_K']
        self.assertEqual(more, [0, 1, 4, 7, 10, 13, 14, 15])
        self.assertEqual(more, [i for i in range(16) if types[f'blk.{i}.attn_v.weight'] == 'Q6_K'])
        self.assertEqual(types['output.weight'], 'Q6_K')
        self.assertEqual(types['token_embd.weight'], 'Q4_K')
        self.assertEqual(types['blk.0.attn_k.weight'], 'Q4_K')

        types = self.types(self.make(MOE, mix='MXFP4_MOE'))
        self.assertEqual(types['blk.1.ffn_up_exps.weight'], 'MXFP4')
        self.assertEqual(types['blk.1.attn_q.weight'], 'Q8_0')
        self.assertEqual(types['blk.1.ffn_gate_inp.weight'], 'F32')

        types = self.types(self.make(GPT_OSS, mix='MXFP4_MOE'))
        self.assertEqual(types['blk.1.ffn_down_exps.weight'], 'MXFP4')
        self.assertEqual(types['blk.1.attn_output.weight'], 'Q8_0')
        for small in ('ffn_gate_exps.bias', 'attn_sinks.weight'):
            self.assertEqual(types[f'blk.1.{small}'], 'F32')

        types = self.types(self.make(dict(DENSE, tie_word_embeddings=True), mix='IQ4_XS'))
        self.assertEqual(types['token_embd.weight'], 'Q6_K')
        self.assertEqual([types[f'blk.{i}.ffn_down.weight'] for i in (1, 2)], ['Q5_K', 'IQ4_XS'])
        self.assertEqual(types['blk.9.attn_v.weight'], 'Q5_K')


if __name__ == '__main__':
    support.main()
