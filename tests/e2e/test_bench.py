#!/usr/bin/env python3
"""What bench reports is what happened: bench serve against our own server, and --trace."""

import json
import pathlib
import tempfile
import unittest

import support
from support import tokamak

FIELDS = {
    'requests', 'errors', 'concurrency', 'rate', 'seconds', 'prompt_tokens', 'cached_tokens',
    'output_tokens', 'without_usage', 'output_tok_s', 'requests_s', 'ttft_ms', 'itl_ms', 'e2e_ms',
    'first_error'}


class BenchServe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = support.Server()
        cls.addClassCleanup(cls.server.__exit__)

    def measure(self, *args, url=None, check=True):
        done = tokamak('bench', 'serve', '--url', url or self.server.url, '--json', *args,
                       check=check)
        return json.loads(done.stdout) if check else done

    def test_concurrency_with_a_shared_prefix(self):
        before = self.server.health()
        args = ('--concurrency', '3', '--requests', '6', '--shared-prefix', '100', '--input', '5:9',
                '--output', '4')
        cold = self.measure(*args)
        self.assertEqual(set(cold), FIELDS)
        self.assertEqual((cold['requests'], cold['errors'], cold['without_usage']), (6, 0, 0))
        self.assertEqual(cold['output_tokens'], 24)
        self.assertGreater(cold['prompt_tokens'], 6 * 105)
        self.assertGreater(cold['cached_tokens'], 0)  # the first one computes for the last ones
        self.assertLessEqual(cold['ttft_ms']['p50'], cold['e2e_ms']['p50'])
        # The server's own count, which it publishes a moment after the last answer.
        self.server.wait_until(
            lambda now: now['generated_tokens'] - before['generated_tokens'] >= 24, '24 are counted')
        after = self.server.health()
        self.assertEqual(after['generated_tokens'] - before['generated_tokens'], 24)
        self.assertEqual(after['prompt_tokens'] - before['prompt_tokens'], cold['prompt_tokens'])

        # Other words after the same prefix, which is there by now.
        warm = self.measure(*args, '--seed', '1')
        self.assertGreater(warm['cached_tokens'], 6 * 100)

    def test_arrivals_and_completions(self):
        result = self.measure('--rate', '50', '--requests', '5', '--input', '3', '--output', '2:3',
                              '--endpoint', 'completions')
        self.assertEqual(result['errors'], 0)
        self.assertTrue(10 <= result['output_tokens'] <= 15, result)

    def test_counts_errors_and_shows_the_first(self):
        done = self.measure('--rate', '50', '--requests', '3', url=self.server.url + '/nowhere',
                            check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('404', done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(result['errors'], 3)
        done = self.measure('--concurrency', '1', '--requests', '2', url='http://127.0.0.1:1',
                            check=False)
        self.assertEqual((done.returncode, json.loads(done.stdout)['errors']), (1, 2))

    def test_refuses_flags_that_do_not_go_together(self):
        for args in ([], ['--rate', '1', '--concurrency', '1'], ['--rate', '-1'],
                     ['--rate', '1', '--endpoint', 'x'], ['--rate', '1', '--requests', '0'],
                     ['--rate', '1', '--input', '9:3']):
            done = self.measure(*args, check=False)
            self.assertEqual(done.returncode, 2, args)

    def test_sends_the_key(self):
        with tempfile.TemporaryDirectory() as folder:
            key = pathlib.Path(folder) / 'key'
            key.write_text('0123456789abcdef0123456789abcdef\n')
            key.chmod(0o600)
            args = ('--concurrency', '1', '--requests', '1', '--input', '3', '--output', '1')
            with support.Server('--api-key-file', str(key)) as server:
                done = self.measure(*args, url=server.url, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn('401', done.stderr)
                result = self.measure(*args, '--api-key-file', str(key), url=server.url)
                self.assertEqual(result['errors'], 0)


class Trace(unittest.TestCase):
    def test_operations_lie_in_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'trace.json'
            out = tokamak('bench', 'latency', support.model_path(), '--batch', '1,2',
                          '--prompt-tokens', '8', '--output-tokens', '4', '--device', 'cpu',
                          '--json', '--trace', str(path))
            self.assertNotIn('gaps between steps', out.stderr)  # that is --profile
            events = json.loads(path.read_text())['traceEvents']
        names = [e['args']['name'] for e in events if e['name'] == 'process_name']
        self.assertEqual(names, ['batch 1', 'batch 2'])
        for run in (0, 1):
            of_run = [e for e in events if e['pid'] == run and e['ph'] == 'X']
            steps = [e for e in of_run if e['name'] == 'step']
            # The prompts, and three tokens after the first ones; one more where the second request
            # came after the first step had begun.
            self.assertIn(len(steps), (4, 4 + run))
            for before, after in zip(steps, steps[1:]):
                self.assertLessEqual(before['ts'] + before['dur'], after['ts'] + 0.01)
            linear = [e for e in of_run if e['name'] == 'linear']
            self.assertEqual(len(linear) % len(steps), 0)
            for e in linear:
                self.assertTrue(any(s['ts'] - 0.01 <= e['ts'] and
                                    e['ts'] + e['dur'] <= s['ts'] + s['dur'] + 0.01 for s in steps))

    def test_a_file_that_cannot_be_written(self):
        done = tokamak('bench', 'latency', support.model_path(), '--trace', '/nowhere/trace',
                       check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('/nowhere/trace', done.stderr)


if __name__ == '__main__':
    support.main()
