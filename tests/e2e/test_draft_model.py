#!/usr/bin/env python3
"""A second model drafts: the answers stay the same, and a model with other tokens is refused."""

import json
import pathlib
import tempfile
import unittest

import support
import tiny_model
from support import tokamak

PROMPTS = ['Once upon a time', 'abcabcabc', '{"a": [1, 2, 3]}', 'x']


def answers(server):
    """Greedy and drawn ones, with penalties, several choices and logprobs."""
    texts = []
    for seed, prompt in enumerate(PROMPTS):
        for sampling in ({'temperature': 0}, {'temperature': 1, 'n': 3},
                         {'temperature': 0.7, 'frequency_penalty': 1, 'logprobs': 2}):
            status, answer = server.request('/v1/completions', {
                'prompt': prompt, 'max_tokens': 60, 'seed': seed, **sampling})
            assert status == 200, answer
            texts.append([(c['text'], c['finish_reason'], c['logprobs']) for c in answer['choices']])
    return texts


class DraftModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.model, cls.small, cls.other = (str(pathlib.Path(folder.name) / name)
                                           for name in ('model', 'small', 'other'))
        template = '{{ messages[-1].content }}'
        tiny_model.write(cls.model, template, idle_layers=15)
        tiny_model.write(cls.small, template)
        tiny_model.write(cls.other, template, seed=2)
        with support.Server('--device', 'cpu', model=cls.model) as server:
            cls.expected = answers(server)

    def serve(self, draft):
        """Returns the numbers of accepted drafts and of all, and the server's log."""
        with support.Server('--device', 'cpu', '--speculate', 'draft', '--draft-model', draft,
                            model=self.model) as server:
            self.assertEqual(answers(server), self.expected)
            metrics = server.metrics()
            return (metrics['tokamak_spec_decode_num_accepted_tokens_total'],
                    metrics['tokamak_spec_decode_num_draft_tokens_total'], ''.join(server.log))

    def test_a_model_with_the_same_output_is_always_right(self):
        accepted, drafts, log = self.serve(self.small)
        self.assertGreater(drafts, 20)
        # An answer that ends at an end token ignores what was drafted behind it.
        self.assertGreater(accepted, 0.8 * drafts)
        self.assertRegex(log, r'drafts by small \(weights: .*, KV cache: 0.3 KB per token\)')

    def test_another_model_changes_no_answer(self):
        accepted, drafts, _ = self.serve(self.other)
        self.assertGreater(drafts, 0)
        self.assertLess(accepted, drafts)

    def test_the_plan_counts_both(self):
        def plan(*args):
            done = tokamak('plan', self.model, '--device', 'cpu', '--json', *args)
            return json.loads(done.stdout)
        alone, both = plan(), plan('--speculate', 'draft', '--draft-model', self.other)
        self.assertEqual(16 * both['block_bytes'], 17 * alone['block_bytes'])
        self.assertEqual(alone['draft_token_bytes'], 0)
        self.assertEqual(both['draft_token_bytes'] * both['block_size'],
                         both['block_bytes'] - alone['block_bytes'])
        text = tokamak('plan', self.model, '--device', 'cpu', '--speculate', 'draft', '--draft-model',
                       self.other).stdout
        self.assertRegex(text, r'draft model .*, and .* per token of the KV cache')
        self.assertGreater(both['draft_bytes'], 0)
        self.assertLess(both['draft_bytes'], both['weight_bytes'] / 2)

    def refusal(self, *args):
        done = tokamak('run', self.model, '--token-ids', '1,2', '--speculate', 'draft', *args,
                       check=False)
        self.assertEqual(done.returncode, 1)
        return done.stderr

    def test_refusals(self):
        self.assertIn('--draft-model: must be given with --speculate=draft', self.refusal())
        self.assertIn('/no/model', self.refusal('--draft-model', '/no/model'))
        tokenizer = pathlib.Path(self.other) / 'tokenizer.json'
        whole = tokenizer.read_text()
        self.addCleanup(tokenizer.write_text, whole)
        tokenizer.write_text(whole.replace('"a": 97', '"b": 97').replace('"b": 98', '"a": 98'))
        self.assertIn('token 97 is "b" in ', self.refusal('--draft-model', self.other))
        more = json.loads(whole)
        more['added_tokens'].append({**more['added_tokens'][0], 'id': 257, 'content': '<more>'})
        tokenizer.write_text(json.dumps(more))
        self.assertRegex(self.refusal('--draft-model', self.other), 'other.* has 258 tokens, but .* has 257')
        tokenizer.unlink()
        self.assertIn('has no tokenizer', self.refusal('--draft-model', self.other))


if __name__ == '__main__':
    unittest.main()
