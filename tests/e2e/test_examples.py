#!/usr/bin/env python3
"""The examples of docs/api.md, as typed but for the port, on a server with the flags that they need."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import image_model
import support

TYPED = 'http://127.0.0.1:8080'


def examples(language):
    text = (support.ROOT / 'docs' / 'api.md').read_text()
    blocks = re.findall(rf'^```{language}\n(.*?)^```$', text, re.M | re.S)
    return [block for block in blocks if TYPED in block]


def shows_image(block):
    return 'image_url' in block


class Examples(unittest.TestCase):
    def run_all(self, blocks, command, server, folder=None):
        self.assertTrue(blocks)
        with server:
            for block in blocks:
                with self.subTest(block):
                    result = subprocess.run([*command, block.replace(TYPED, server.url)], text=True,
                                            capture_output=True, timeout=support.PATIENCE, cwd=folder)
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                    self.assertNotEqual(result.stdout.strip(), '')
            server.terminate()
            server.wait_for_log()
            self.assertNotIn('ignored fields', ''.join(server.log))

    def server(self):
        return support.Server('--max-logprobs', '100', '--reasoning-parser', 'think')

    def test_curl(self):
        options = 'set -o pipefail; curl() { command curl --silent --show-error --fail-with-body "$@"; };'
        blocks = [f'{options} {block}' for block in examples('sh')]
        self.run_all([b for b in blocks if not shows_image(b)], ['bash', '-ec'], self.server())
        with tempfile.TemporaryDirectory(prefix='tokamak-examples-') as folder:
            model = pathlib.Path(folder) / 'model'
            image_model.write(model, 'llava_odd')
            shutil.copy(image_model.picture('gamma.png'), pathlib.Path(folder) / 'cat.png')
            self.run_all([b for b in blocks if shows_image(b)], ['bash', '-ec'],
                         support.Server(model=model), folder)

    def test_python_client(self):
        try:
            import openai  # noqa: F401
        except ImportError:
            self.skipTest('the Python package openai is not installed')
        self.run_all(examples('python'), [sys.executable, '-c'], self.server())


if __name__ == '__main__':
    support.main()
