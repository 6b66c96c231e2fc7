#!/usr/bin/env python3
"""The server as the real `openai` client sees it."""

import concurrent.futures
import json
import unittest

import support

try:
    import openai
except ImportError:
    openai = None


@unittest.skipIf(openai is None, 'the openai package is not there; run scripts/setup-test-refs')
class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The goldens are of f32 activations.
        cls.server = support.Server('--precise')
        cls.client = cls.server.client()
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def chat(self, messages, **options):
        return self.client.chat.completions.create(model=self.model, messages=messages,
                                                   temperature=0, max_tokens=24, **options)

    def test_holds_a_conversation_of_two_turns(self):
        messages = [{'role': 'user', 'content': 'What is the capital of France?'}]
        first = self.chat(messages)
        self.assertIn('Paris', first.choices[0].message.content)
        self.assertEqual(first.choices[0].finish_reason, 'stop')
        messages.append({'role': 'assistant', 'content': first.choices[0].message.content})
        messages.append({'role': 'user', 'content': 'And of Germany?'})
        second = self.chat(messages)
        self.assertIn('Berlin', second.choices[0].message.content)
        # The first turn is in the prefix cache by now.
        self.assertGreater(second.usage.prompt_tokens_details.cached_tokens,
                           first.usage.prompt_tokens // 2)

    def test_streams_the_same_conversation(self):
        messages = [{'role': 'user', 'content': 'What is the capital of France?'}]
        whole = self.chat(messages)
        text, reasons, usage = '', [], None
        for chunk in self.chat(messages, stream=True, stream_options={'include_usage': True}):
            for choice in chunk.choices:
                text += choice.delta.content or ''
                reasons += [choice.finish_reason] if choice.finish_reason else []
            usage = chunk.usage or usage
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(reasons, ['stop'])
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)

    def test_gives_logprobs_choices_and_seeds(self):
        options = dict(model=self.model, max_tokens=8, n=3, seed=11, temperature=1.0,
                       logprobs=True, top_logprobs=3,
                       messages=[{'role': 'user', 'content': 'Name a colour.'}])
        first = self.client.chat.completions.create(**options)
        again = self.client.chat.completions.create(**options)
        self.assertEqual([c.message.content for c in first.choices],
                         [c.message.content for c in again.choices])
        self.assertEqual(first.system_fingerprint, again.system_fingerprint)
        self.assertEqual(first.model_extra['seed'], 11)
        self.assertEqual([c.index for c in first.choices], [0, 1, 2])
        for choice in first.choices:
            for token in choice.logprobs.content:
                self.assertLessEqual(token.logprob, 0)
                self.assertEqual(len(token.top_logprobs), 3)
                self.assertEqual(bytes(token.bytes).decode('utf-8', 'replace'), token.token)

    def test_completes_text_echoes_it_and_stops(self):
        done = self.client.completions.create(model=self.model, prompt='1 2 3 4 5', max_tokens=12,
                                              temperature=0, echo=True, logprobs=1, stop=[' 9'])
        choice = done.choices[0]
        self.assertTrue(choice.text.startswith('1 2 3 4 5 6 7 8'), choice.text)
        self.assertNotIn('9', choice.text)
        self.assertEqual(choice.finish_reason, 'stop')
        self.assertIsNone(choice.logprobs.token_logprobs[0])
        self.assertEqual(''.join(choice.logprobs.tokens)[:len('1 2 3 4 5')], '1 2 3 4 5')

    def test_reports_errors_as_the_client_expects_them(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model=self.model, prompt='a', top_p=5)
        self.assertEqual(caught.exception.param, 'top_p')
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model='no-such-model', prompt='a')

    def test_twenty_requests_at_once_equal_the_reference(self):
        """Greedy ids equal an fp32 Hugging Face run, in company as alone."""
        if not support.GOLDENS.exists():
            self.skipTest('no goldens')
        if 'Q4_1' not in self.model:
            self.skipTest('the goldens are of another model')
        goldens = json.loads(support.GOLDENS.read_text())['greedy']

        def complete(golden):
            return self.client.completions.create(
                model=self.model, prompt=golden['prompt'], temperature=0, max_tokens=length,
                extra_body={'ignore_eos': True, 'return_token_ids': True})

        count, length = len(goldens), 24
        if support.SLOW:
            count, length = 5, 6

        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            for golden, done in zip(goldens, pool.map(complete, goldens[:count])):
                self.assertEqual(done.choices[0].model_extra['token_ids'], golden['tokens'][:length],
                                 golden['name'])


if __name__ == '__main__':
    support.main()
