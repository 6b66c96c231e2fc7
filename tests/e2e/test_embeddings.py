#!/usr/bin/env python3
"""Tests /v1/embeddings and `tokamak embed`: all-MiniLM-L6-v2 against the reference's goldens
through the openai client, a tiny Qwen3-Embedding, and refusals."""

import base64
import json
import math
import os
import pathlib
import struct
import tempfile
import threading
import unittest

import support

try:
    import openai
except ImportError:
    openai = None

REFS = pathlib.Path(os.environ.get('TOKAMAK_TEST_REFS') or support.cache_dir() / 'test-refs')
MINILM = REFS / 'all-MiniLM-L6-v2'
GOLDEN = json.loads((support.ROOT / 'tests' / 'golden' / 'minilm.json').read_text())
TINY = str(support.ROOT / 'tests' / 'golden' / 'hf' / 'qwen3_embedding')


def worst(a, b):
    assert len(a) == len(b)
    return max(abs(x - y) for x, y in zip(a, b))


@unittest.skipUnless(MINILM.exists(), 'all-MiniLM-L6-v2 is not there; run scripts/setup-test-refs')
@unittest.skipUnless(openai, 'the openai package is not there; run scripts/setup-test-refs')
class MiniLm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = support.Server(model=str(MINILM))
        cls.addClassCleanup(cls.server.__exit__)
        cls.client = cls.server.client()

    def create(self, **fields):
        return self.client.embeddings.create(model='all-MiniLM-L6-v2', **fields)

    def test_both_formats_equal_the_reference(self):
        items = [t for t in GOLDEN['texts'] if not t['cut']]
        texts = [t['text'] for t in items]
        tokens = sum(len(t['tokens']) for t in items)
        # By default the client requests base64 and decodes it.
        for options in {}, {'encoding_format': 'float'}:
            answer = self.create(input=texts, **options)
            self.assertEqual([d.index for d in answer.data], list(range(len(texts))))
            self.assertEqual(answer.usage.prompt_tokens, tokens)
            self.assertEqual(answer.usage.total_tokens, tokens)
            self.assertEqual(answer.model, 'all-MiniLM-L6-v2')
            for got, item in zip(answer.data, items):
                self.assertLess(worst(got.embedding, item['vector']), 1e-5, item['text'])
        raw = self.create(input='a', encoding_format='base64').data[0].embedding
        as_base64 = struct.unpack('<384f', base64.b64decode(raw, validate=True))
        as_float = self.create(input='a', encoding_format='float').data[0].embedding
        self.assertEqual(list(as_base64), [struct.unpack('<f', struct.pack('<f', x))[0] for x in as_float])

    def test_text_tokens_and_lists_of_them_are_the_same(self):
        item = GOLDEN['texts'][0]
        inputs = item['text'], [item['text']], item['tokens'], [item['tokens']]
        answers = [self.create(input=i).data[0].embedding for i in inputs]
        for answer in answers[1:]:
            self.assertEqual(answer, answers[0])

    def test_other_requests_change_no_bit(self):
        texts = [t['text'] for t in GOLDEN['texts'] if not t['cut']]
        alone = [self.create(input=t).data[0].embedding for t in texts]
        together = [None] * 8

        def embed_all(i):
            together[i] = [d.embedding for d in self.create(input=texts[i:] + texts[:i]).data]

        threads = [threading.Thread(target=embed_all, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i, vectors in enumerate(together):
            self.assertEqual(vectors, alone[i:] + alone[:i])

    def test_long_texts_are_refused_or_cut(self):
        item = next(t for t in GOLDEN['texts'] if t['cut'])
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(input=['a', item['text']])
        self.assertEqual(caught.exception.param, 'input[1]')
        self.assertEqual(caught.exception.code, 'context_length_exceeded')
        answer = self.create(input=item['text'], extra_body={'truncate_prompt_tokens': -1})
        self.assertLess(worst(answer.data[0].embedding, item['vector']), 1e-5)
        self.assertEqual(answer.usage.prompt_tokens, 256)
        few = self.create(input=item['text'], extra_body={'truncate_prompt_tokens': 3})
        self.assertEqual(few.usage.prompt_tokens, 3)

    def test_bad_input_names_the_path(self):
        for body, param in (
                ({}, 'input'), ({'input': []}, 'input'), ({'input': [[]]}, 'input[0]'),
                ({'input': ['a', 5]}, 'input[1]'), ({'input': [1, 40000]}, 'input[1]'),
                ({'input': [[1], [-1]]}, 'input[1][0]'), ({'input': ['a'] * 2049}, 'input'),
                ({'input': 'a', 'dimensions': 128}, 'dimensions'),
                ({'input': 'a', 'encoding_format': 'int8'}, 'encoding_format'),
                ({'input': 'a', 'truncate_prompt_tokens': 1}, 'truncate_prompt_tokens'),
                ({'input': 'a', 'truncate_prompt_tokens': 0}, 'truncate_prompt_tokens'),
                ({'input': 'a', 'prompt_name': 'query'}, 'prompt_name')):
            status, answer = self.server.request('/v1/embeddings', body)
            self.assertEqual(status, 400, body)
            self.assertEqual(answer['error']['param'], param, answer)
            self.assertEqual(answer['error']['type'], 'invalid_request_error')
        self.assertEqual(self.server.request('/v1/embeddings', {'input': 'a', 'model': 'gpt'})[0], 404)
        self.assertEqual(self.server.request('/v1/embeddings', b'{"input": ')[0], 400)
        self.assertEqual(self.server.request('/v1/embeddings')[0], 405)
        self.assertEqual(self.create(input='a', dimensions=384).data[0].index, 0)

    def test_it_generates_nothing(self):
        for path, body in (('/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'a'}]}),
                           ('/v1/completions', {'prompt': 'a'})):
            status, answer = self.server.request(path, body)
            self.assertEqual(status, 400)
            self.assertEqual(answer['error']['code'], 'unsupported')
            self.assertIn('/v1/embeddings', answer['error']['message'])

    def test_models_health_and_metrics_tell(self):
        model = self.server.request('/v1/models')[1]['data'][0]
        self.assertEqual((model['task'], model['architecture'], model['max_model_len']),
                         ('embed', 'BertModel', 256))
        self.assertEqual(model['embedding'], {'dimensions': 384, 'pooling': 'mean', 'normalized': True,
                                              'prompts': []})
        before = self.metrics()
        self.create(input=['one', 'two'])
        after = self.metrics()
        self.assertEqual(after['tokamak_prompt_tokens_total'] - before['tokamak_prompt_tokens_total'], 6)
        stop = 'tokamak_requests_total{finished_reason="stop"}'
        self.assertEqual(after[stop] - before[stop], 1)
        self.assertEqual(self.server.health()['status'], 'ok')
        self.assertEqual(self.server.request('/debug/state')[0], 200)

    def metrics(self):
        import urllib.request
        text = urllib.request.urlopen(self.server.url + '/metrics').read().decode()
        lines = [line.rsplit(' ', 1) for line in text.splitlines() if not line.startswith('#')]
        return {name: float(value) for name, value in lines}

    def test_the_command_line_gives_the_same(self):
        items = [t for t in GOLDEN['texts'] if not t['cut'] and '\n' not in t['text'] and t['text'].isprintable()]
        items = [t for t in items if '[SEP]' not in t['text']]
        lines = ''.join(t['text'] + '\n' for t in items)
        output = support.tokamak('embed', str(MINILM), '--json', stdin=lines).stdout.splitlines()
        self.assertEqual(len(output), len(items))
        for i, (line, item) in enumerate(zip(output, items)):
            answer = json.loads(line)
            self.assertEqual(answer['index'], i)
            self.assertLess(worst(answer['embedding'], item['vector']), 1e-5, item['text'])
        plain = support.tokamak('embed', str(MINILM), '--string', items[0]['text']).stdout.split()
        self.assertLess(worst([float(x) for x in plain], items[0]['vector']), 1e-5)


class TinyQwen3Embedding(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = support.Server('--precise', model=TINY)
        cls.addClassCleanup(cls.server.__exit__)

    def embed(self, **body):
        status, answer = self.server.request('/v1/embeddings', body)
        self.assertEqual(status, 200, answer)
        return [d['embedding'] for d in answer['data']]

    def test_dimensions_and_prompts_are_the_models(self):
        whole, = self.embed(input='cab')
        cut, = self.embed(input='cab', dimensions=16)
        length = math.sqrt(sum(x * x for x in whole[:16]))
        self.assertLess(worst(cut, [x / length for x in whole[:16]]), 1e-6)
        status, answer = self.server.request('/v1/embeddings', {'input': 'a', 'dimensions': 17})
        self.assertEqual((status, answer['error']['param']), (400, 'dimensions'))
        self.assertEqual(self.embed(input='cab', prompt_name='query'), self.embed(input='ab: cab'))
        timings = self.server.request('/v1/embeddings', {'input': 'a', 'timings': True})[1]['timings']
        self.assertEqual(timings['steps'], 1)

    def test_tokens_of_a_golden_give_its_vectors(self):
        golden = json.loads((support.ROOT / 'tests' / 'golden' / 'hf' / 'qwen3_embedding.json').read_text())
        for got, expected in zip(self.embed(input=golden['texts']), golden['vectors']):
            self.assertLess(worst(got, expected), 1e-5)

    def test_a_client_that_leaves_is_cancelled(self):
        import socket
        body = json.dumps({'input': ['c' * 390] * 2000}).encode()
        with socket.create_connection(('127.0.0.1', self.server.port)) as connection:
            connection.sendall(b'POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\n'
                               b'Content-Type: application/json\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
            self.server.wait_until(lambda h: h['running'] == 1, 'it runs')
        self.server.wait_until(lambda h: h['running'] == 0, 'it is cancelled')
        self.assertEqual(len(self.embed(input='a')), 1)

    def test_sigterm_lets_it_finish(self):
        with support.Server('--precise', model=TINY) as server:
            result = {}

            def ask():
                result['answer'] = server.request('/v1/embeddings', {'input': ['c' * 300] * 100})

            thread = threading.Thread(target=ask)
            thread.start()
            server.wait_until(lambda h: h['running'] == 1 or not thread.is_alive(), 'it runs')
            self.assertEqual(server.terminate(), 0)
            thread.join()
            self.assertEqual(result['answer'][0], 200)
            self.assertEqual(len(result['answer'][1]['data']), 100)


class CommandLine(unittest.TestCase):
    def test_errors_say_what_to_do(self):
        def fails(*args, message, code=1):
            result = support.tokamak('embed', *args, '--string', 'a', check=False)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(message, result.stderr)

        fails(TINY, '--dimensions', '5', message='dimensions')
        fails(TINY, '--pooling', 'max', message='--pooling', code=2)
        bert = support.ROOT / 'tests' / 'golden' / 'hf' / 'bert_64'
        fails(str(bert), message='has no tokenizer')

    def test_every_string_is_one_text(self):
        strings = ['[one,two]', '{}', '', '%%', 'a,b']
        args = [arg for string in strings for arg in ('--string', string)]
        output = support.tokamak('embed', TINY, '--json', *args).stdout.splitlines()
        with tempfile.NamedTemporaryFile('w') as file:
            file.write(''.join(string + '\n' for string in strings))
            file.flush()
            lines = support.tokamak('embed', TINY, '--json', '--text', file.name).stdout.splitlines()
        self.assertEqual(len(output), len(strings))
        self.assertEqual(output, lines)

    def test_a_model_that_generates_embeds_nothing(self):
        if not pathlib.Path(support.model_path()).exists():
            self.skipTest('the model is not there')
        result = support.tokamak('embed', support.model_path(), '--string', 'a', check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn('generates text and cannot make embeddings', result.stderr)
        with support.Server() as server:
            status, answer = server.request('/v1/embeddings', {'input': 'a'})
            self.assertEqual(status, 400)
            self.assertEqual(answer['error']['code'], 'unsupported')
            self.assertEqual(server.request('/v1/models')[1]['data'][0]['task'], 'generate')


if __name__ == '__main__':
    support.main()
