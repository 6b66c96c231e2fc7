#!/usr/bin/env python3
"""The OpenAPI document against the server: schemathesis sends what it allows and what it forbids.

TOKAMAK_SCHEMA_EXAMPLES is how many requests each path gets in the random phase (20 by default).
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import support

SCHEMATHESIS = pathlib.Path(sys.executable).with_name('schemathesis')
EXAMPLES = os.environ.get('TOKAMAK_SCHEMA_EXAMPLES', '20')
# What a document cannot say makes some requests that it allows wrong: that min_tokens is at most
# max_tokens, that a prompt fits, what a model's template takes.
UNCHECKED = 'positive_data_acceptance'


@unittest.skipUnless(SCHEMATHESIS.exists(), 'schemathesis is not there; run scripts/setup-test-refs')
class Schema(unittest.TestCase):
    def test_answers_are_what_the_document_says(self):
        with support.Server('--max-context', '48') as server:
            named = re.findall(r'(?<= )/[\w./]+\w', server.request('/nowhere')[1]['error']['message'])
            self.assertGreater(len(named), 5)
            self.assertLessEqual(set(named), set(server.request('/openapi.json')[1]['paths']))
            self.check(server)

    def test_those_of_a_model_that_embeds_too(self):
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
                 '--request-timeout', str(support.PATIENCE), *options],
                cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                env=dict(os.environ, HYPOTHESIS_STORAGE_DIRECTORY=folder, NO_COLOR='1'))
        self.assertEqual(run.returncode, 0, run.stdout[-20000:] + run.stderr[-2000:])
        support.report('schemathesis', run.stdout.strip().splitlines()[-1].strip(' ='))
        server.wait_until(lambda h: h['running'] == 0 and h['used_blocks'] == 0, 'nothing runs')
        self.assertEqual(server.health()['status'], 'ok')


if __name__ == '__main__':
    support.main()
