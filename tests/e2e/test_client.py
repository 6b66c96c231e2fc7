#!/usr/bin/env python3
"""Tests the server through the real `openai` client."""

import asyncio
import concurrent.futures
import json
import tempfile
import unittest

import support

try:
    import openai
    import pydantic
except ImportError:
    openai = None


@unittest.skipIf(openai is None, 'the openai package is not there; run scripts/setup-test-refs')
class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The goldens were made with f32 activations.
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
        # The first turn is in the prefix cache now.
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

    def test_streams_choices_with_usage_in_the_end(self):
        options = dict(model=self.model, prompt='Once upon a time', n=2, max_tokens=6, seed=3,
                       temperature=1.0)
        whole = self.client.completions.create(**options)
        texts, usage, seeds = ['', ''], [], set()
        for chunk in self.client.completions.create(**options, stream=True,
                                                    stream_options={'include_usage': True}):
            seeds.add(chunk.model_extra['seed'])
            self.assertEqual(chunk.system_fingerprint, whole.system_fingerprint)
            for choice in chunk.choices:
                texts[choice.index] += choice.text
            usage += [chunk.usage] if chunk.usage else []
        self.assertEqual(texts, [c.text for c in whole.choices])
        self.assertEqual([u.completion_tokens for u in usage], [whole.usage.completion_tokens])
        self.assertEqual(seeds, {3})

    def test_stops_in_conversations_and_says_why(self):
        messages = [{'role': 'user', 'content': 'Count from 1 to 9, with commas.'}]
        answer = self.chat(messages, stop=[','], seed=1)
        self.assertNotIn(',', answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, 'stop')
        # Greedy: a draw from a random seed may end the answer before its second token.
        short = self.client.chat.completions.create(model=self.model, messages=messages,
                                                    temperature=0, max_completion_tokens=2)
        self.assertEqual(short.choices[0].finish_reason, 'length')
        self.assertEqual(short.usage.completion_tokens, 2)
        self.assertIsInstance(short.model_extra['seed'], int)

    def test_takes_token_ids_and_lists_of_prompts(self):
        ids = self.server.request('/tokenize', {'text': 'The sky is'})[1]['tokens']
        done = self.client.completions.create(model=self.model, temperature=0, max_tokens=4,
                                              prompt=['The sky is', 'One, two,'])
        again = self.client.completions.create(model=self.model, temperature=0, max_tokens=4,
                                               prompt=ids)
        self.assertEqual([c.index for c in done.choices], [0, 1])
        self.assertEqual(done.choices[0].text, again.choices[0].text)

    def test_tokenizes_what_a_conversation_becomes(self):
        messages = [{'role': 'user', 'content': 'Hi \u2603'}]
        status, tokens = self.server.request('/tokenize', {'messages': messages,
                                                           'return_pieces': True})
        self.assertEqual(status, 200)
        usage = self.chat(messages).usage
        self.assertEqual(tokens['count'], usage.prompt_tokens)
        self.assertEqual(len(tokens['pieces']), tokens['count'])
        text = b''.join(bytes(p['bytes']) for p in tokens['pieces']).decode()
        self.assertIn('user\nHi \u2603<|im_end|>', text)
        self.assertEqual(self.server.request('/detokenize', {'tokens': tokens['tokens']})[1],
                         {'text': text})

    @unittest.skipIf(support.SLOW, 'what it asks for is computed as in the tests around it')
    def test_takes_every_sampling_field(self):
        """Checks that each field changes the answer as its name says."""
        def complete(**options):
            extra = {'return_token_ids': True, 'ignore_eos': True, **options.pop('extra', {})}
            done = self.client.completions.create(
                **{'model': self.model, 'prompt': 'One two one two one', 'max_tokens': 6, 'seed': 5,
                   'temperature': 0, **options}, extra_body=extra)
            return done.choices[0].model_extra['token_ids'], done.choices[0].finish_reason
        plain, _ = complete()
        first = plain[0]
        self.assertEqual(complete(best_of=1, top_p=0.5)[0], plain)
        self.assertNotIn(first, complete(logit_bias={str(first): -100})[0])
        self.assertEqual(complete(logit_bias={'1000': 100})[0], [1000] * 6)
        # The bias keeps one token on top until the penalties outweigh it.
        biased = dict(logit_bias={'1000': 14}, max_tokens=16)
        self.assertEqual(complete(**biased)[0], [1000] * 16)
        penalized = complete(**biased, presence_penalty=2, frequency_penalty=2)[0]
        self.assertNotEqual(penalized, [1000] * 16)
        dry = {'dry_multiplier': 5, 'dry_sequence_breakers': ['x']}
        self.assertNotEqual(complete(**biased, extra=dry)[0], [1000] * 16)
        text = self.server.request('/detokenize', {'tokens': [1000]})[1]['text']
        dry['dry_sequence_breakers'] = ['x', text]
        self.assertEqual(complete(**biased, extra=dry)[0], [1000] * 16)
        self.assertNotEqual(complete(extra={'repetition_penalty': 1.8})[0], plain)
        self.assertEqual(complete(extra={'stop_token_ids': [first]})[1], 'stop')
        self.assertEqual(complete(extra={'stop_token_ids': [first], 'min_tokens': 4})[1], 'length')
        hot = dict(temperature=2.0)
        drawn = complete(**hot)[0]
        self.assertNotEqual(drawn, plain)
        self.assertEqual(complete(**hot)[0], drawn)
        for narrow in ({'top_p': 1e-6}, {'extra': {'top_k': 1}}, {'extra': {'min_p': 1.0}}):
            self.assertEqual(complete(**hot, **narrow)[0], plain, narrow)
        self.assertEqual(len(complete(**hot, extra={'typical_p': 0.5})[0]), 6)

    def test_gives_the_logprobs_of_prompts(self):
        ids = self.server.request('/tokenize', {'text': 'The sky is'})[1]['tokens']
        done = self.client.completions.create(model=self.model, prompt='The sky is', max_tokens=1,
                                              extra_body={'prompt_logprobs': 2})
        rows = done.choices[0].model_extra['prompt_logprobs']
        self.assertEqual(len(rows), len(ids))
        self.assertIsNone(rows[0])
        self.assertEqual(''.join(row['token'] for row in rows[1:]), ' sky is')
        for row in rows[1:]:
            self.assertLessEqual(row['logprob'], 0)
            self.assertEqual(len(row['top_logprobs']), 2)

    def test_streams_logprobs_and_echo_as_it_answers_them(self):
        options = dict(model=self.model, prompt='1 2 3', max_tokens=4, temperature=0, echo=True,
                       logprobs=2)
        whole = self.client.completions.create(**options).choices[0]
        text, tokens, logprobs, offsets = '', [], [], []
        for chunk in self.client.completions.create(**options, stream=True):
            for choice in chunk.choices:
                text += choice.text
                if choice.logprobs:
                    tokens += choice.logprobs.tokens
                    logprobs += choice.logprobs.token_logprobs
                    offsets += choice.logprobs.text_offset
        self.assertEqual(text, whole.text)
        self.assertEqual(tokens, whole.logprobs.tokens)
        self.assertEqual(logprobs, whole.logprobs.token_logprobs)
        self.assertEqual(offsets, whole.logprobs.text_offset)
        options = dict(logprobs=True, top_logprobs=2)
        messages = [{'role': 'user', 'content': 'Count to three.'}]
        whole = self.chat(messages, **options).choices[0].logprobs.content
        streamed = [token for chunk in self.chat(messages, stream=True, **options)
                    for choice in chunk.choices if choice.logprobs
                    for token in choice.logprobs.content]
        self.assertEqual(streamed, whole)

    def test_streams_through_the_helper_of_the_client(self):
        messages = [{'role': 'user', 'content': 'What is the capital of France?'}]
        with self.client.chat.completions.stream(model=self.model, messages=messages,
                                                 temperature=0, max_tokens=24) as stream:
            text = ''.join(event.delta for event in stream if event.type == 'content.delta')
            final = stream.get_final_completion().choices[0]
        self.assertEqual(text, final.message.content)
        self.assertIn('Paris', text)
        self.assertEqual(final.finish_reason, 'stop')

    def test_serves_the_asynchronous_client(self):
        async def ask():
            async with openai.AsyncOpenAI(base_url=self.server.url + '/v1', api_key='none',
                                          max_retries=0, timeout=support.PATIENCE) as client:
                options = dict(model=self.model, prompt='One, two,', max_tokens=4, temperature=0)
                stream = await client.completions.create(**options, stream=True)
                streamed = ''.join([c.choices[0].text async for c in stream if c.choices])
                wholes = await asyncio.gather(*(client.completions.create(**options)
                                                for _ in range(4)))
                return streamed, {whole.choices[0].text for whole in wholes}
        streamed, wholes = asyncio.run(ask())
        self.assertEqual({streamed}, wholes)

    def test_takes_what_changes_nothing_here(self):
        answer = self.chat([{'role': 'user', 'content': 'Hi', 'name': 'me'}], user='me', store=True,
                           metadata={'a': 'b'}, service_tier='auto', safety_identifier='me',
                           prompt_cache_key='k', reasoning_effort='low', parallel_tool_calls=False,
                           tool_choice='none', response_format={'type': 'text'}, n=1,
                           presence_penalty=0, frequency_penalty=0, logit_bias={})
        self.assertTrue(answer.choices[0].message.content)
        for wrong in ({'user': 5}, {'metadata': 'a'}, {'store': 'yes'}, {'tool_choice': 'required'}):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat([{'role': 'user', 'content': 'Hi'}], extra_body=wrong)
            self.assertEqual([caught.exception.param], list(wrong))

    def test_finds_its_model_by_name(self):
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve('no/such model')

    def test_says_where_the_time_went(self):
        answer = self.client.completions.create(model=self.model, prompt='a', max_tokens=4,
                                                extra_body={'timings': True, 'ignore_eos': True})
        timings = answer.model_extra['timings']
        self.assertGreaterEqual(timings['steps'] + timings['draft_n_accepted'], 4)
        self.assertGreater(timings['decode_ms'], 0)
        self.assertEqual(timings['preemptions'], 0)

    def test_ignores_what_it_does_not_know(self):
        answer = self.client.completions.create(model=self.model, prompt='a', max_tokens=1,
                                                user='me', extra_body={'frobnicate': 1})
        self.assertEqual(answer.usage.completion_tokens, 1)

    def test_takes_tools_of_classes(self):
        class Add(pydantic.BaseModel):
            n: int
        tools = [openai.pydantic_function_tool(Add)]
        self.assertTrue(tools[0]['function']['strict'])
        messages = [{'role': 'user', 'content': 'Add one.'}]
        raw = self.client.chat.completions.with_raw_response.create(
            model=self.model, messages=messages, tools=tools, max_tokens=1)
        self.assertEqual(raw.headers['tokamak-ignored-fields'], 'tools[].function.strict')
        self.assertEqual(raw.parse().usage.completion_tokens, 1)

    def test_raises_the_exceptions_of_the_client(self):
        def complete(client=self.client, **options):
            return client.completions.create(**{'model': self.model, 'prompt': 'a',
                                                'max_tokens': 1, **options})
        with self.assertRaises(openai.BadRequestError) as caught:
            complete(prompt=[1] * 100000)
        self.assertEqual(caught.exception.code, 'context_length_exceeded')
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat([{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {}}]}])
        self.assertEqual(caught.exception.param, 'messages[0].content[0].type')
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat([{'role': 'user', 'content': 'a'}], response_format={'type': 'xml'})
        self.assertEqual(caught.exception.param, 'response_format.type')
        with tempfile.NamedTemporaryFile('w') as keys:
            keys.write('right\n')
            keys.flush()
            with support.Server('--api-key-file', keys.name) as server:
                with self.assertRaises(openai.AuthenticationError):
                    complete(server.client())
                right = server.client().with_options(api_key='right')
                self.assertEqual(complete(right).usage.completion_tokens, 1)

    def test_calls_tools(self):
        """The model continues in the style of the conversation, with a call in Hermes format."""
        tools = [{'type': 'function', 'function': {
            'name': 'add', 'parameters': {'type': 'object',
                                          'properties': {'n': {'type': 'integer'}}}}}]
        call = '<tool_call>\n{"name": "add", "arguments": {"n": 1}}\n</tool_call>'
        messages = [{'role': 'system', 'content': 'Add one.'}]
        for _ in range(4):
            messages += [{'role': 'user', 'content': 'Again.'},
                         {'role': 'assistant', 'content': call}]
        messages.append({'role': 'user', 'content': 'Again.'})
        with support.Server('--precise', '--tool-call-parser', 'hermes') as server:
            options = dict(model=self.model, messages=messages, tools=tools, temperature=0,
                           max_tokens=60)
            client = server.client()
            answer = client.chat.completions.create(**options)
            choice = answer.choices[0]
            self.assertEqual(choice.finish_reason, 'tool_calls', choice)
            made = choice.message.tool_calls[0]
            self.assertEqual(made.function.name, 'add')
            self.assertEqual(json.loads(made.function.arguments), {'n': 1})
            self.assertFalse(choice.message.content)
            streamed, reasons = [], []
            for chunk in client.chat.completions.create(**options, stream=True):
                for piece in chunk.choices:
                    self.assertFalse(piece.delta.content)
                    streamed += piece.delta.tool_calls or []
                    reasons += [piece.finish_reason] if piece.finish_reason else []
            self.assertEqual(support.joined_calls(streamed),
                             [('add', made.function.arguments)])
            self.assertGreater(len(streamed), 2, 'the arguments come in pieces')
            self.assertEqual(reasons, ['tool_calls'])
            # If it must not call tools, all of its output is content.
            plain = client.chat.completions.create(**options, tool_choice='none').choices[0]
            self.assertFalse(plain.message.tool_calls)
            one = client.chat.completions.create(**options, tool_choice='auto',
                                                 parallel_tool_calls=False).choices[0]
            self.assertEqual(len(one.message.tool_calls), 1)
            # A strict tool holds the call to its schema, which the conversation does not keep to.
            strict = json.loads(json.dumps(tools))
            strict[0]['function'].update(strict=True, parameters={
                'type': 'object', 'additionalProperties': False, 'required': ['count'],
                'properties': {'count': {'enum': [7, 8]}}})
            raw = client.chat.completions.with_raw_response.create(
                **dict(options, tools=strict, parallel_tool_calls=False))
            self.assertIsNone(raw.headers.get('tokamak-ignored-fields'))
            held = raw.parse().choices[0]
            self.assertEqual(held.finish_reason, 'tool_calls', held)
            self.assertIn(json.loads(held.message.tool_calls[0].function.arguments),
                          ({'count': 7}, {'count': 8}))
            # Free text is still free.
            asked = [{'role': 'user', 'content': 'What is the capital of France?'}]
            said = client.chat.completions.create(**dict(options, messages=asked, tools=strict))
            free = client.chat.completions.create(**dict(options, messages=asked))
            self.assertTrue(said.choices[0].message.content)
            self.assertEqual(said.choices[0].message.content, free.choices[0].message.content)
            # Sends the result back and asks the model to continue.
            messages += [choice.message.to_dict(),
                         {'role': 'tool', 'tool_call_id': made.id, 'content': '2'}]
            after = client.chat.completions.create(**dict(options, tools=[]))
            self.assertIn(after.choices[0].finish_reason, ('stop', 'length'))

    def test_twenty_requests_at_once_equal_the_reference(self):
        """Greedy ids of concurrent requests equal those of an fp32 Hugging Face run."""
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
