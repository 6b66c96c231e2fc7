#!/usr/bin/env python3
"""Tests the server against its OpenAPI document: schemathesis sends what it allows and what it
forbids.

TOKAMAK_SCHEMA_EXAMPLES: requests per path in the random phase (20 by default).
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import support

try:
    import jsonschema_rs
except ImportError:
    jsonschema_rs = None

SCHEMATHESIS = pathlib.Path(sys.executable).with_name('schemathesis')
EXAMPLES = os.environ.get('TOKAMAK_SCHEMA_EXAMPLES', '20')
# Some requests that the document allows are wrong in ways that it cannot express: min_tokens above
# max_tokens, a prompt that does not fit, messages that the model's template refuses.
UNCHECKED = 'positive_data_acceptance'


CHAT = {'messages': [{'role': 'user', 'content': 'a'}], 'max_tokens': 1}
TEXT = {'prompt': 'a', 'max_tokens': 1}
TAGS = {'type': 'structural_tag', 'triggers': ['<f='], 'structures': [
    {'begin': '<f=a>', 'schema': {'type': 'integer'}, 'end': '</f>'}]}
# Rules between fields: (path, schema, body, whether the body is valid).
RULES = [
    ('/v1/chat/completions', 'ChatRequest', body, right) for body, right in [
        (CHAT, True),
        ({**CHAT, 'stream_options': {}}, False),
        ({**CHAT, 'stream_options': {}, 'stream': False}, False),
        ({**CHAT, 'stream_options': {}, 'stream': None}, False),
        ({**CHAT, 'stream_options': None}, True),
        ({**CHAT, 'top_logprobs': 2}, False),
        ({**CHAT, 'top_logprobs': 2, 'logprobs': False}, False),
        ({**CHAT, 'top_logprobs': 2, 'logprobs': True}, True),
        ({**CHAT, 'top_logprobs': None}, True),
        ({**CHAT, 'messages': [{'role': 'user'}]}, False),
        ({**CHAT, 'messages': [{'role': 'assistant', 'content': None}]}, True),
        ({**CHAT, 'messages': [{'role': 'user', 'content': None}]}, False),
        ({**CHAT, 'messages': [{'role': 'user', 'content': 'a', 'prefix': True}]}, False),
        ({**CHAT, 'tools': [{'function': {'name': 'f', 'strict': True}}]}, True),
        ({**CHAT, 'guided_json': {'type': 'object'}}, True),
        ({**CHAT, 'guided_json': 5}, False),
        ({**CHAT, 'guided_json': None, 'logits_processors': [], 'use_beam_search': False}, True),
        ({**CHAT, 'guided_choice': ['a', 'b']}, True),
        ({**CHAT, 'guided_choice': ['a', 5]}, False),
        ({**CHAT, 'structured_outputs': {'regex': 'a+'}}, True),
        ({**CHAT, 'structured_outputs': {'regex': 5}}, False),
        ({**CHAT, 'modalities': ['text']}, True),
        ({**CHAT, 'modalities': ['text', 'audio']}, False),
        ({**CHAT, 'response_format': {'type': 'text'}}, True),
        ({**CHAT, 'response_format': {'type': 'json_object'}}, True),
        ({**CHAT, 'response_format': {'type': 'json_schema'}}, False),
        ({**CHAT, 'response_format': TAGS}, True),
        ({**CHAT, 'structured_outputs': {'structural_tag': json.dumps(TAGS)}}, True),
        ({**CHAT, 'response_format': {**TAGS, 'triggers': []}}, False),
        ({**CHAT, 'response_format': {'type': 'xml'}}, False),
        ({**CHAT, 'enable_thinking': False}, False),
        ({**CHAT, 'use_beam_search': True, 'best_of': 2, 'length_penalty': 0.6, 'early_stopping': 'never'}, True),
        ({**CHAT, 'use_beam_search': True, 'best_of': 2, 'early_stopping': 'always'}, False),
        ({**CHAT, 'use_beam_search': True, 'temperature': 0}, True),
    ]] + [
    ('/v1/completions', 'CompletionRequest', body, right) for body, right in [
        ({**TEXT, 'stream_options': {}}, False),
        ({**TEXT, 'best_of': 2}, False),
        ({**TEXT, 'best_of': 2, 'n': None}, False),
        ({**TEXT, 'best_of': 2, 'n': 2}, True),
        ({**TEXT, 'best_of': 0}, True),
        ({**TEXT, 'use_beam_search': True, 'best_of': 2, 'length_penalty': 0.6}, True),
        ({**TEXT, 'use_beam_search': True, 'temperature': 0.5}, False),
        ({**TEXT, 'length_penalty': 0.6}, False),
        ({**TEXT, 'n_predict': -1, 'max_tokens': None, 'stop': ['a']}, True),
        ({**TEXT, 'n_predict': 'x', 'max_tokens': None}, False),
        ({**TEXT, 'repeat_penalty': 1.1}, True),
        ({**TEXT, 'repeat_penalty': 0}, False),
    ]] + [
    ('/tokenize', 'TokenizeRequest', body, right) for body, right in [
        ({'text': 'a'}, True), ({'prompt': 'a'}, True), ({'content': 'a'}, True),
        ({'messages': CHAT['messages']}, True), ({}, False), ({'text': None}, False),
        ({'text': 'a', 'prompt': 'a'}, False), ({'text': None, 'prompt': 'a'}, True),
        ({'text': 'a', 'messages': CHAT['messages']}, False),
        ({'prompt': 'a', 'messages': CHAT['messages']}, False),
        ({'text': 'a', 'messages': None}, True),
    ]]


@unittest.skipUnless(SCHEMATHESIS.exists(), 'schemathesis is not there; run scripts/setup-test-refs')
class Schema(unittest.TestCase):
    def test_answers_are_what_the_document_says(self):
        with support.Server('--max-context', '48') as server:
            named = re.findall(r'(?<= )/[\w./]+\w', server.request('/nowhere')[1]['error']['message'])
            self.assertGreater(len(named), 5)
            self.assertLessEqual(set(named), set(server.request('/openapi.json')[1]['paths']))
            self.check(server)

    @unittest.skipIf(jsonschema_rs is None, 'jsonschema_rs is not there')
    def test_rules_between_fields_are_those_of_the_document(self):
        with support.Server('--max-context', '48') as server:
            document = server.request('/openapi.json')[1]
            for path, schema, body, right in RULES:
                with self.subTest(path=path, body=body):
                    self.assertEqual(server.request(path, body)[0], 200 if right else 400)
                    validator = jsonschema_rs.Draft202012Validator({
                        '$ref': f'#/components/schemas/{schema}',
                        'components': document['components']})
                    self.assertEqual(validator.is_valid(body), right)

    def test_answers_of_a_model_that_embeds(self):
        model = support.ROOT / 'tests' / 'golden' / 'hf' / 'qwen3_embedding'
        with support.Server(model=str(model)) as server:
            self.check(server, '--include-path', '/v1/embeddings')

    def check(self, server, *options):
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run(
                [SCHEMATHESIS, 'run', server.url + '/openapi.json', '--checks', 'all',
                 '--exclude-checks', UNCHECKED, '--phases', 'examples,coverage,fuzzing',
                 '--max-examples', EXAMPLES, '--seed', '1', '--continue-on-failure',
                 '--suppress-health-check', 'all', '--warnings', 'off',
                 '--request-timeout', str(support.PATIENCE),
                 '--max-response-time', str(support.PATIENCE), *options],
                cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                env=dict(os.environ, HYPOTHESIS_STORAGE_DIRECTORY=folder, NO_COLOR='1'))
        self.assertEqual(run.returncode, 0, run.stdout[-20000:] + run.stderr[-2000:])
        support.report('schemathesis', run.stdout.strip().splitlines()[-1].strip(' ='))
        server.wait_until(lambda h: h['running'] == 0 and h['used_blocks'] == 0, 'nothing runs')
        self.assertEqual(server.health()['status'], 'ok')


if __name__ == '__main__':
    support.main()
