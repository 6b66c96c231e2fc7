#!/usr/bin/env python3
"""The examples of docs/api.md, as typed but for the port, on a server with the flags that they need."""
import re
import subprocess
import sys
import unittest

import support

TYPED = 'http://127.0.0.1:8080'


def examples(language):
    text = (support.ROOT / 'docs' / 'api.md').read_text()
    blocks = re.findall(rf'^```{language}\n(.*?)^```$', text, re.M | re.S)
    return [block for block in blocks if TYPED in block]


class Examples(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(support.Server('--max-logprobs', '100', '--reasoning-parser', 'think'))

    def run_all(self, blocks, command):
        self.assertTrue(blocks)
        for block in blocks:
            with self.subTest(block):
                result = subprocess.run([*command, block.replace(TYPED, self.server.url)], text=True,
                                        capture_output=True, timeout=support.PATIENCE)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                self.assertNotEqual(result.stdout.strip(), '')
        self.server.terminate()
        self.server.wait_for_log()
        self.assertNotIn('ignored fields', ''.join(self.server.log))

    def test_curl(self):
        options = 'curl() { command curl --silent --show-error --fail-with-body "$@"; };'
        self.run_all([f'{options} {block}' for block in examples('sh')], ['bash', '-ec'])

    def test_python_client(self):
        try:
            import openai  # noqa: F401
        except ImportError:
            self.skipTest('the Python package openai is not installed')
        self.run_all(examples('python'), [sys.executable, '-c'])


if __name__ == '__main__':
    support.main()
