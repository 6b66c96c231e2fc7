#!/usr/bin/env python3
"""thinking_token_budget through OpenAI's client. The template opens the reasoning, and the model,
which has random weights, writes bytes of its own accord up to the budget."""

import codecs
import json
import tempfile
import unittest

import support
import tiny_model

try:
    import openai
except ImportError:
    openai = None

TEMPLATE = '{%- for message in messages -%}{{ message.content }}{%- endfor -%}<think>{#- </think> -#}'
CLOSE = list(b'</think>')
MESSAGES = [{'role': 'user', 'content': 'Think about the sea.'}]
NO_END = {str(tiny_model.EOS): -100}  # otherwise it is drawn now and then, and it is no byte
DRAW = {'temperature': 1, 'max_tokens': 60, 'logit_bias': NO_END}


def end_of(tokens, budget):
    """Returns how many tokens come before the forced mark: the budget, and what a character that has
    begun still needs, three at most."""
    decoder = codecs.getincrementaldecoder('utf-8')(errors='replace')
    decoder.decode(bytes(tokens[:budget]))
    for end in range(budget, budget + 3):
        if not decoder.getstate()[0]:
            return end
        decoder.decode(bytes(tokens[end:end + 1]))
    return budget + 3


@unittest.skipIf(openai is None, 'the openai package is not there; run scripts/setup-test-refs')
class Thinking(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix='tokamak-thinking-'))
        tiny_model.write(cls.folder, TEMPLATE)
        cls.server = cls.enterClassContext(support.Server(model=cls.folder))
        cls.client = cls.server.client()
        cls.model = cls.client.models.list().data[0].id

    def chat(self, client=None, extra=None, **options):
        options = {'model': self.model, 'messages': MESSAGES, **DRAW, **options}
        body = {'return_token_ids': True, 'ignore_eos': True, **(extra or {})}
        return (client or self.client).chat.completions.create(**options, extra_body=body)

    def tokens(self, **options):
        return self.chat(**options).choices[0].model_extra['token_ids']

    def test_ends_the_reasoning_at_the_budget_and_changes_nothing_before(self):
        for seed in range(12):
            free = self.tokens(seed=seed)
            for budget in (0, 1, 5, 17):
                bound = self.tokens(seed=seed, extra={'thinking_token_budget': budget})
                end = end_of(free, budget)
                self.assertEqual(bound[:end], free[:end], (seed, budget))
                self.assertEqual(bound[end:end + len(CLOSE)], CLOSE, (seed, budget))
                self.assertEqual(len(bound), DRAW['max_tokens'])
            for spelling in ('reasoning_budget', 'reasoning_budget_tokens', 'thinking_budget_tokens'):
                self.assertEqual(self.tokens(seed=seed, extra={spelling: 17}), bound)
            self.assertEqual(self.tokens(seed=seed, extra={'thinking_token_budget': -1}), free)
            self.assertEqual(self.tokens(seed=seed, extra={'thinking_token_budget': 60}), free)

    def test_splits_the_answer_there(self):
        answer = self.chat(seed=3, n=2, extra={'thinking_token_budget': 20}).choices
        for choice in answer:
            end = end_of(choice.model_extra['token_ids'], 20)
            ids = choice.model_extra['token_ids']
            thought = bytes(ids[:end]).decode('utf-8', 'replace')
            self.assertEqual(choice.message.model_extra['reasoning_content'].strip(), thought.strip())
            text = bytes(ids[end + len(CLOSE):]).decode('utf-8', 'replace')
            self.assertEqual(choice.message.content.strip(), text.strip())
        parts = {'reasoning_content': '', 'content': ''}
        for chunk in self.chat(seed=3, stream=True, extra={'thinking_token_budget': 20}):
            for choice in chunk.choices:
                for name in parts:
                    parts[name] += getattr(choice.delta, name, None) or ''
        whole = self.chat(seed=3, extra={'thinking_token_budget': 20}).choices[0].message
        self.assertEqual(parts['content'], whole.content)
        self.assertEqual(parts['reasoning_content'], whole.model_extra['reasoning_content'])

    def test_works_beside_forms_and_tools(self):
        tool = {'type': 'function', 'function': {'name': 'add', 'parameters': {
            'type': 'object', 'additionalProperties': False, 'required': ['a'],
            'properties': {'a': {'type': 'integer', 'minimum': 0, 'maximum': 99}}}}}
        for seed in range(4):
            choice = self.chat(seed=seed, extra={'thinking_token_budget': 6, 'ignore_eos': False,
                                                 'regex': '[ab]{3}'}).choices[0]
            self.assertEqual(choice.finish_reason, 'stop')
            self.assertRegex(choice.message.content, '^[ab]{3}$')
            ids = choice.model_extra['token_ids']
            end = end_of(ids, 6)
            self.assertEqual(ids[end:end + len(CLOSE)], CLOSE)
        with support.Server('--tool-call-parser', 'hermes', model=self.folder) as server:
            choice = self.chat(server.client(), tools=[tool], tool_choice='required', max_tokens=200,
                               parallel_tool_calls=False, extra={'thinking_token_budget': 6, 'ignore_eos': False}).choices[0]
            self.assertEqual(choice.finish_reason, 'tool_calls')
            call, = choice.message.tool_calls
            self.assertEqual(list(json.loads(call.function.arguments)), ['a'])

    def test_drafts_change_nothing(self):
        """The mark is several tokens, which are drafts once it has begun."""
        for seed in range(4):
            extra = {'thinking_token_budget': 9}
            drafted = self.chat(seed=seed, extra={**extra, 'timings': True})
            plain = self.tokens(seed=seed, extra={**extra, 'speculate': False})
            self.assertEqual(drafted.choices[0].model_extra['token_ids'], plain)

    def test_a_server_has_a_default(self):
        with support.Server('--thinking-token-budget', '4', model=self.folder) as server:
            client = server.client()
            given = self.chat(extra={'thinking_token_budget': 4}, seed=8).choices[0]
            default = self.chat(client, seed=8).choices[0]
            self.assertEqual(default.model_extra['token_ids'], given.model_extra['token_ids'])
            free = self.chat(client, extra={'thinking_token_budget': -1}, seed=8).choices[0]
            self.assertEqual(free.model_extra['token_ids'], self.tokens(seed=8))
            text = client.completions.create(model=self.model, prompt='a<think>', max_tokens=30, seed=8,
                                             extra_body={'ignore_eos': True, 'return_token_ids': True})
            self.assertEqual(len(text.choices[0].model_extra['token_ids']), 30)

    def test_is_refused_where_it_cannot_be_kept(self):
        for server, fields in ((support.Server('--reasoning-parser', 'none', model=self.folder),
                                {'reasoning_budget': 5}),
                               (support.Server('--reasoning-parser', 'openai_gptoss',
                                               model=self.folder), {'thinking_token_budget': 5})):
            with server, self.assertRaises(openai.APIStatusError) as caught:
                self.chat(server.client(), extra=fields)
            self.assertEqual([caught.exception.param], list(fields))
        for fields in ({'thinking_token_budget': 5}, {'reasoning_budget': 5}):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.client.completions.create(model=self.model, prompt='a', extra_body=fields)
            self.assertEqual([caught.exception.param], list(fields))

    def test_run_has_it_too(self):
        def run(*flags):
            result = support.tokamak('run', self.folder, '-p', 'Think.', '--max-tokens', '40', '--json',
                                     '--ignore-eos', '--seed', '5', '--logit-bias',
                                     f'{tiny_model.EOS}=-100', *flags)
            return json.loads(result.stdout)['token_ids']
        free, bound = run(), run('--thinking-token-budget', '7')
        end = end_of(free, 7)
        self.assertEqual(bound[:end + len(CLOSE)], free[:end] + CLOSE)
        refused = support.tokamak('run', self.folder, '--raw', '-p', 'Think.', '--thinking-token-budget',
                                  '7', check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn('thinking_token_budget', refused.stderr.replace('-', '_'))


if __name__ == '__main__':
    support.main()
