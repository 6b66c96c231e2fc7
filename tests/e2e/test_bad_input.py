#!/usr/bin/env python3
"""Bad input gets an answer, or an error that names the problem; never a crash."""

import http.client
import json
import os
import random
import tempfile
import threading
import time
import unittest

import support
from support import Server, tokamak


class BadRequests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        alive = cls.server.process.poll() is None
        code = cls.server.terminate() if alive else None
        cls.server.__exit__()
        assert alive and code == 0, 'the server did not survive'

    def complete(self, body):
        return self.server.request('/v1/completions', body)

    def refused(self, body, param, status=400):
        got, answer = self.complete(body)
        self.assertEqual(got, status, (body, answer))
        self.assertEqual(answer['error']['param'], param, (body, answer))
        return answer['error']['message']

    def test_every_sampling_field_at_its_extremes(self):
        for field, value in [
                ('temperature', 0), ('temperature', 1e-30), ('temperature', 2), ('temperature', 100),
                ('top_k', 0), ('top_k', 1), ('top_k', 2**31 - 1), ('top_p', 1e-30), ('top_p', 1),
                ('dynatemp_range', 0), ('dynatemp_range', 1e30), ('dynatemp_exponent', 0),
                ('dynatemp_exponent', 1e30), ('top_n_sigma', -1), ('top_n_sigma', 0),
                ('top_n_sigma', 1e-30), ('xtc_probability', 0), ('xtc_probability', 1),
                ('xtc_threshold', 0), ('xtc_threshold', 1),
                ('min_p', 0), ('min_p', 1), ('typical_p', 1e-30), ('typical_p', 1),
                ('repetition_penalty', 1e-30), ('repetition_penalty', 100),
                ('presence_penalty', -2), ('presence_penalty', 2), ('frequency_penalty', -2),
                ('frequency_penalty', 2), ('seed', 0), ('seed', 2**64 - 1), ('seed', -2**63),
                ('repeat_last_n', -1), ('repeat_last_n', 65535), ('dry_multiplier', 2),
                ('dry_base', 1), ('dry_allowed_length', 0), ('dry_penalty_last_n', -1),
                ('dry_sequence_breakers', []), ('dry_sequence_breakers', ['ab', '\n', 'x' * 40]), ('allowed_token_ids', []),
                ('allowed_token_ids', [0, 49151]), ('bad_words', []), ('bad_words', ['a', '\n']),
                ('logit_bias', {}), ('logit_bias', {'0': -100, '49151': 100}), ('n', 20),
                ('max_tokens', 0), ('min_tokens', 2), ('stop', []), ('stop', 'x' * 4000),
                ('stop', ['\u0000']), ('stop_token_ids', []), ('stop_token_ids', [0, 49151]),
                ('include_stop_str_in_output', True), ('skip_special_tokens', False),
                ('ignore_eos', True), ('logprobs', 0), ('logprobs', 20), ('prompt_logprobs', 20),
                ('priority', 0), ('priority', -2**31), ('cache_salt', 'x' * 10000)]:
            status, answer = self.complete({'prompt': 'Hi', 'max_tokens': 2, field: value})
            self.assertEqual(status, 200, (field, value, answer))

    def test_sampling_fields_out_of_range(self):
        for field, value in [
                ('temperature', -0.1), ('temperature', 1e39), ('top_k', -2), ('top_p', 0),
                ('dynatemp_range', -0.1), ('dynatemp_exponent', -0.1), ('top_n_sigma', -0.1),
                ('xtc_probability', 1.1), ('xtc_threshold', -0.1),
                ('top_p', 1.1), ('min_p', -0.1), ('min_p', 1.1), ('typical_p', 0),
                ('typical_p', 1.1), ('repetition_penalty', 0), ('repetition_penalty', -1),
                ('repeat_last_n', -2), ('repeat_last_n', 65536), ('dry_multiplier', -0.1),
                ('dry_base', 0.9), ('dry_allowed_length', 1025), ('dry_penalty_last_n', 65536),
                ('presence_penalty', 2.1), ('frequency_penalty', -2.1), ('n', 0), ('n', 129),
                ('n', 2**31), ('max_tokens', -1), ('max_tokens', 2**31), ('min_tokens', -1),
                ('logprobs', -1), ('logprobs', 21), ('prompt_logprobs', 21), ('priority', 1), ('priority', 2**31 - 1),
                ('seed', 2**64)]:
            self.refused({'prompt': 'Hi', field: value}, field)
        for field, value, param in [
                ('logit_bias', {'49152': 0}, 'logit_bias.49152'),
                ('logit_bias', {'0': 101}, 'logit_bias.0'), ('stop', [''], 'stop[0]'),
                ('stop_token_ids', [49152], 'stop_token_ids[0]'),
                ('allowed_token_ids', [1, 49152], 'allowed_token_ids[1]'),
                ('dry_sequence_breakers', ['a', ''], 'dry_sequence_breakers[1]'),
                ('bad_words', ['a', ' '], 'bad_words[1]'), ('bad_words', [''], 'bad_words[0]'),
                ('stop_token_ids', [-1], 'stop_token_ids[0]')]:
            self.refused({'prompt': 'Hi', field: value}, param)

    def test_wrong_types(self):
        values = [None, True, 1, 1.5, 'x', [], {}, [1], ['x']]
        kinds = {
            'temperature': (int, float), 'top_p': (int, float), 'min_p': (int, float),
            'presence_penalty': (int, float), 'top_k': int, 'n': int, 'max_tokens': int,
            'min_tokens': int, 'seed': int, 'logprobs': int, 'priority': int, 'echo': bool,
            'ignore_eos': bool, 'stream': bool, 'cache_salt': str, 'model': str}
        for field, kind in kinds.items():
            for value in values:
                if value is None or (isinstance(value, kind) and
                                     isinstance(value, bool) == (kind is bool)):
                    continue
                self.refused({'prompt': 'Hi', field: value}, field)

    def test_bodies_that_are_not_json(self):
        for body in [b'', b'nonsense', b'[]', b'null', b'"x"', b'{', b'{"prompt": "a",}',
                     b'{"prompt": "a", "temperature": NaN}',
                     b'{"prompt": "a", "temperature": Infinity}',
                     b'{"prompt": "a", "temperature": 1e999}', b'\xff\xfe{}',
                     b'{"prompt": "\xff"}', b'{"prompt": "\xed\xa0\x80"}',
                     b'{"prompt": "\\ud800"}', b'{"prompt": "\\udc00\\ud800"}',
                     b'{"prompt": "a\x00b"}', b'[' * 100000, b'{"a":' * 100000]:
            status, answer = self.server.request('/v1/completions', body)
            self.assertEqual(status, 400, (body[:40], answer))
            self.assertIn('message', answer['error'])

    def test_odd_text_is_served(self):
        for prompt in ['\u0000', 'a\u0000b', '\ufffd', '\U0010ffff', '\u202e\u0301', '\n' * 100,
                       '👩‍👩‍👧‍👦' * 5, '<|im_start|>', '<|endoftext|>']:
            status, answer = self.complete({'prompt': prompt, 'max_tokens': 1})
            self.assertEqual(status, 200, (prompt, answer))

    def test_a_megabyte_of_one_letter_takes_bounded_time(self):
        for letter in ('a', ' ', 'é', '\u0000'):
            start = time.monotonic()
            message = self.refused({'prompt': letter * (1 << 20)}, 'prompt')
            self.assertIn('8192', message)
            support.report(f'refusing 1 MiB of {letter!r} (s)', round(time.monotonic() - start, 2))

    def test_others_go_on_while_megabytes_of_one_letter_are_tokenized(self):
        before = self.server.health()['generated_tokens']
        connection = http.client.HTTPConnection('127.0.0.1', self.server.port,
                                                timeout=support.PATIENCE)
        connection.request('POST', '/v1/completions', json.dumps({
            'prompt': 'Once upon a time', 'max_tokens': 4000, 'ignore_eos': True,
            'stream': True}), {'Content-Type': 'application/json'})
        stream = connection.getresponse()

        def next_event():
            while not stream.readline().startswith(b'data: {'):
                pass

        next_event()
        body = json.dumps({'prompt': 'a' * (1 << 20)}).encode()
        answers = []
        clients = [threading.Thread(target=lambda: answers.append(self.complete(body)))
                   for _ in range(8)]
        for client in clients:
            client.start()
        self.server.wait_until(lambda h: h['preparing'] > 0 or answers, 'megabytes wait')
        # Reads more events than tokens exist now, so the last ones were made later.
        made = self.server.health()['generated_tokens'] - before
        gaps, last = [], time.monotonic()
        for _ in range(made + 5):
            next_event()
            now = time.monotonic()
            gaps.append(now - last)
            last = now
        answered = len(answers)
        connection.close()
        for client in clients:
            client.join()
        self.assertLess(answered, len(clients))
        self.assertEqual([status for status, _ in answers], [400] * len(clients))
        support.report('longest gap between a stream\'s tokens meanwhile (s)',
                       round(max(gaps), 3))

    def test_prompts_longer_than_the_context(self):
        message = self.refused({'prompt': [100] * 8192, 'max_tokens': 1}, 'prompt')
        self.assertIn('8192', message)
        self.refused({'prompt': [49152]}, 'prompt[0]')
        self.refused({'prompt': [-1]}, 'prompt[0]')
        self.refused({'prompt': ''}, 'prompt')

    def test_a_prompt_longer_than_the_whole_cache(self):
        with Server('--num-blocks', '4', '--block-size', '16') as small:
            status, answer = small.request('/v1/completions',
                                           {'prompt': [100] * 100, 'max_tokens': 10})
            self.assertEqual(status, 400)
            self.assertIn('4', answer['error']['message'])
            self.assertEqual(small.request('/v1/completions', {'prompt': [100] * 40,
                                                               'max_tokens': 10})[0], 200)

    def test_random_json(self):
        seed = random.randrange(2**32)
        print('seed', seed)
        generator = random.Random(seed)
        fields = ['prompt', 'temperature', 'top_p', 'n', 'max_tokens', 'stop', 'logit_bias',
                  'logprobs', 'stream', 'stream_options', 'echo', 'messages', 'seed', 'x']

        def value(depth):
            return generator.choice([
                lambda: generator.randrange(-3, 9), lambda: generator.uniform(-2, 3),
                lambda: generator.choice([True, False, None]),
                lambda: ''.join(chr(generator.randrange(1, 0x3000)) for _ in range(5)),
                lambda: [value(depth + 1) for _ in range(generator.randrange(3))] if depth < 4
                else 1,
                lambda: {generator.choice(fields): value(depth + 1) for _ in range(2)}
                if depth < 4 else 2])()

        for _ in range(150):
            body = {field: value(0) for field in generator.sample(fields, 5)}
            body['max_tokens'] = generator.choice([1, 2, 'x'])
            body['stream'] = False
            for path in ('/v1/completions', '/v1/chat/completions'):
                status, answer = self.server.request(path, body)
                self.assertIn(status, (200, 400), (body, answer))


class BadFiles(unittest.TestCase):
    def fails(self, path, *words):
        for command in (['run', path, '-p', 'a', '--max-tokens', '1'], ['inspect', path]):
            failed = tokamak(*command, check=False, timeout=60)
            self.assertEqual(failed.returncode, 1, (command, failed.stdout[:100]))
            for word in words:
                self.assertIn(word, failed.stderr, command)

    def test_files_that_are_no_models(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'model.gguf')
            self.fails(path, path, 'no such file')
            self.fails(folder, folder)
            for content in (b'', b'GGUF', b'GGUF\x03\0\0\0' + b'\xff' * 16, b'x' * 1000):
                with open(path, 'wb') as file:
                    file.write(content)
                self.fails(path, path)

    def test_a_truncated_model(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'short.gguf')
            with open(support.model_path(), 'rb') as source, open(path, 'wb') as file:
                file.write(source.read(50_000_000))
            failed = tokamak('run', path, '-p', 'a', check=False)
            self.assertEqual(failed.returncode, 1)
            self.assertIn('short.gguf', failed.stderr)

    def test_damaged_metadata(self):
        with open(support.model_path(), 'rb') as source:
            head = source.read(2_000_000)
        seed = random.randrange(2**32)
        print('seed', seed)
        generator = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'damaged.gguf')
            for _ in range(15):
                damaged = bytearray(head)
                for _ in range(generator.randrange(1, 20)):
                    damaged[generator.randrange(2000)] = generator.randrange(256)
                with open(path, 'wb') as file:
                    file.write(damaged)
                result = tokamak('run', path, '-p', 'a', '--max-tokens', '1', check=False,
                                 timeout=120)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn('error: ', result.stderr)

    def test_a_model_too_large_for_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'huge.json')
            with open(path, 'w') as file:
                json.dump({'architectures': ['LlamaForCausalLM'], 'hidden_size': 65536,
                           'intermediate_size': 262144, 'num_hidden_layers': 200,
                           'num_attention_heads': 512, 'num_key_value_heads': 512,
                           'head_dim': 128, 'vocab_size': 200000, 'hidden_act': 'silu',
                           'rms_norm_eps': 1e-5, 'max_position_embeddings': 4096,
                           'rope_theta': 10000.0, 'tie_word_embeddings': False}, file)
            failed = tokamak('run', 'dummy:' + path, '--token-ids', '1', check=False)
            self.assertEqual(failed.returncode, 1, failed.stderr)
            self.assertIn('memory', failed.stderr)

    def test_options_out_of_range(self):
        for args in (['--threads', '-1'], ['--threads', '100000'], ['--max-seqs', '-1'],
                     ['--max-batch-tokens', '1'], ['--block-size', '0'], ['--num-blocks', '-1'],
                     ['--max-context', '1000000'], ['--isa', 'mmx'], ['--device', 'tpu'],
                     ['--kv-cache-dtype', 'f64'], ['--mla', 'fast'], ['--kernels', 'fast'],
                     ['--attention', 'fast'], ['--device', 'cpu', '--attention', 'flashinfer'],
                     ['--kv-cache-memory', '1'], ['--kv-cache-memory', '100T'],
                     ['--target-itl-ms', '-1'],
                     ['--target-itl-ms', 'nan'], ['--cuda-graphs', 'eager']):
            failed = tokamak('run', support.model_path(), '-p', 'a', *args, check=False)
            self.assertIn(failed.returncode, (1, 2), args)
            self.assertIn('error: ', failed.stderr, args)


if __name__ == '__main__':
    support.main()
