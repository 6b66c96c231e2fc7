#!/usr/bin/env python3
"""Checks that bench reports what happened: bench serve against our server and unusual ones, and
bench latency --trace."""

import http.server
import json
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest
from xml.etree import ElementTree

import support
from support import tokamak

FIELDS = {
    'url', 'endpoint', 'model', 'server', 'concurrency', 'rate', 'burstiness', 'input', 'output',
    'turns', 'think_seconds', 'shared_prefix', 'prefix_groups', 'seed', 'ramp_seconds',
    'duration_seconds', 'replayed', 'requests',
    'errors', 'errors_by_kind', 'first_error', 'cancelled', 'seconds', 'window_seconds', 'prompt_tokens',
    'cached_tokens', 'output_tokens', 'without_usage', 'output_tok_s', 'total_tok_s', 'requests_s', 'offered_s',
    'ttft_ms', 'tpot_ms', 'itl_ms', 'e2e_ms', 'slo', 'good', 'goodput_s', 'late_ms', 'client_cpu'}
SVG = '{http://www.w3.org/2000/svg}'


def measure(url, *args, check=True):
    """Returns the JSON objects that bench serve prints, or without `check` the finished process."""
    done = tokamak('bench', 'serve', '--url', url, '--json', *args, check=check)
    return [json.loads(line) for line in done.stdout.splitlines()] if check else done


class BenchServe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = support.Server()
        cls.addClassCleanup(cls.server.__exit__)

    def measure(self, *args, url=None, check=True):
        done = measure(url or self.server.url, *args, check=check)
        return done[0] if check else done

    def test_concurrency_with_a_shared_prefix(self):
        # Another test's requests are counted a moment after their last answer.
        self.server.wait_until(lambda now: now['running'] == 0, 'nothing runs')
        before = self.server.health()
        args = ('--concurrency', '3', '--requests', '6', '--shared-prefix', '100', '--input', '5:9',
                '--output', '4')
        cold = self.measure(*args)
        self.assertEqual(set(cold), FIELDS)
        self.assertEqual((cold['requests'], cold['errors'], cold['without_usage']), (6, 0, 0))
        self.assertEqual(cold['output_tokens'], 24)
        self.assertGreater(cold['prompt_tokens'], 6 * 105)
        # The first request computes the prefix for the last ones.
        self.assertGreater(cold['cached_tokens'], 0)
        self.assertLessEqual(cold['ttft_ms']['p50'], cold['e2e_ms']['p50'])
        # The server publishes its counts a moment after the last answer.
        self.server.wait_until(
            lambda now: now['generated_tokens'] - before['generated_tokens'] >= 24, '24 are counted')
        after = self.server.health()
        self.assertEqual(after['generated_tokens'] - before['generated_tokens'], 24)
        self.assertEqual(after['prompt_tokens'] - before['prompt_tokens'], cold['prompt_tokens'])

        # Other words after the same prefix, which is cached by now.
        warm = self.measure(*args, '--seed', '1')
        self.assertGreater(warm['cached_tokens'], 6 * 100)

    def test_arrivals_and_completions(self):
        result = self.measure('--rate', '50', '--requests', '5', '--input', '3', '--output', '2:3',
                              '--endpoint', 'completions', url=self.server.url + '/v1')
        self.assertEqual(result['errors'], 0)
        self.assertTrue(10 <= result['output_tokens'] <= 15, result)

    def test_several_rates_with_a_plot_and_a_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            plot, trace = pathlib.Path(folder) / 'plot.svg', pathlib.Path(folder) / 'trace.jsonl'
            results = measure(self.server.url, '--rate', '20,40', '--burstiness', '2', '--requests',
                              '4', '--input', 'normal:5:2', '--output', '3', '--warmup', '1',
                              '--slo', 'ttft=1000000,tpot=0.000001', '--plot', str(plot),
                              '--trace', str(trace))
            self.assertEqual([r['rate'] for r in results], [20, 40])
            for result in results:
                self.assertEqual((result['requests'], result['errors']), (4, 0))
                self.assertEqual((result['good'], result['goodput_s']), (0, 0))  # tpot is never met
                self.assertEqual(result['server'], 'tokamak')
                self.assertEqual(result['output_tokens'], 12)
                self.assertGreater(result['client_cpu'], 0)
            picture = ElementTree.parse(plot).getroot()
            self.assertEqual(picture.tag, SVG + 'svg')
            self.assertIn(results[0]['model'], picture.find(SVG + 'title').text)
            lines = [json.loads(line) for line in trace.read_text().splitlines()]
            self.assertEqual(sorted(line['load'] for line in lines), [0] * 4 + [1] * 4)
            self.assertEqual(sum(line['output_tokens'] for line in lines), 24)
            for line in lines:
                self.assertGreaterEqual(line['late_ms'], 0)
                self.assertLessEqual(line['ttft_ms'], line['e2e_ms'])
            # The trace can be replayed.
            replayed = measure(self.server.url, '--replay', str(trace), '--speed', '2')
            for result in replayed:
                self.assertEqual((result['requests'], result['errors']), (4, 0))
                self.assertEqual(result['output_tokens'], 12)
            self.assertGreater(replayed[1]['rate'], replayed[0]['rate'])

    def test_conversations_find_their_history_cached(self):
        result = self.measure('--concurrency', '2', '--requests', '8', '--turns', '4', '--input',
                              '30', '--output', '20', '--seed', '5', '--think-seconds', '0.01')
        self.assertEqual((result['requests'], result['errors']), (8, 0))
        # The history that turns 2 to 4 repeat.
        self.assertGreater(result['cached_tokens'], 2 * (30 + 60 + 90))

    def test_duration(self):
        result = self.measure('--concurrency', '2', '--duration', '0.5', '--ramp', '0.1', '--input',
                              '3', '--output', '2')
        self.assertEqual(result['errors'], 0)
        self.assertGreater(result['requests'], 0)
        self.assertAlmostEqual(result['window_seconds'], 0.4)

    def test_progress_is_whole_lines_where_no_terminal_is(self):
        done = measure(self.server.url, '--concurrency', '1', '--requests', '2', '--input', '3',
                       '--output', '2', check=False)
        self.assertNotIn('\r', done.stderr)
        self.assertNotIn('\033', done.stderr)

    def test_ctrl_c_prints_what_there_is(self):
        process = subprocess.Popen(
            [support.BINARY, 'bench', 'serve', '--url', self.server.url, '--concurrency', '1',
             '--requests', '1000000', '--input', '3', '--output', '2', '--json'],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        before = self.server.health()['generated_tokens']
        self.server.wait_until(lambda now: now['generated_tokens'] > before + 4, 'it runs')
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=support.PATIENCE)
        self.assertEqual(process.returncode, 130)
        self.assertGreater(json.loads(out)['output_tokens'], 0)

    def test_counts_errors_and_shows_the_first(self):
        done = self.measure('--rate', '50', '--requests', '3', url=self.server.url + '/nowhere',
                            check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('404', done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(result['errors_by_kind'], {'http_404': 3})
        done = self.measure('--concurrency', '1', '--requests', '2', url='http://127.0.0.1:1',
                            check=False)
        self.assertEqual((done.returncode, json.loads(done.stdout)['errors']), (1, 2))

    def test_refuses_flags_that_do_not_go_together(self):
        for args in ([], ['--rate', '1', '--concurrency', '1'], ['--rate', '-1'],
                     ['--rate', '1', '--endpoint', 'x'], ['--rate', '1', '--requests', '0'],
                     ['--rate', '1', '--input', '9:3'], ['--rate', '1,'], ['--concurrency', '0'],
                     ['--rate', '1', '--slo', 'ttft'], ['--rate', '1', '--body', '[1]'],
                     ['--rate', '1', '--burstiness', '0'], ['--rate', '1', '--turns', '0'],
                     ['--rate', '1', '--replay', '/x'], ['--rate', '1', '--duration', '-1'],
                     ['--rate', '1', '--duration', '2', '--ramp', '2'],
                     ['--rate', '1', '--plot', 'a.png'],
                     ['--rate', '1', '--api-key-env', 'TOKAMAK_NO_SUCH_VARIABLE']):
            done = self.measure(*args, check=False)
            self.assertEqual(done.returncode, 2, args)

    def test_sends_the_key(self):
        with tempfile.TemporaryDirectory() as folder:
            key = pathlib.Path(folder) / 'key'
            key.write_text('# comment\n\n 0123456789abcdef0123456789abcdef \r\nanother\n')
            key.chmod(0o600)
            args = ('--concurrency', '1', '--requests', '1', '--input', '3', '--output', '1')
            with support.Server('--api-key-file', str(key)) as server:
                done = self.measure(*args, url=server.url, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn('401', done.stderr)
                result = self.measure(*args, '--api-key-file', str(key), url=server.url)
                self.assertEqual(result['errors'], 0)
                done = tokamak('bench', 'serve', '--url', server.url, *args, '--api-key-env', 'KEY',
                               env={'KEY': '0123456789abcdef0123456789abcdef'})
                self.assertIn('1 requests, 0 failed', done.stdout)


@unittest.skipUnless(shutil.which('openssl'), 'there is no openssl')
class Https(unittest.TestCase):
    def test_a_server_that_is_trusted(self):
        args = ('--concurrency', '2', '--requests', '6', '--input', '3', '--output', '4')
        with tempfile.TemporaryDirectory() as folder:
            cert, key = support.make_certificate(folder, 'bench')
            with support.Server('--tls-cert', cert, '--tls-key', key) as server:
                for host in ('localhost', '127.0.0.1'):
                    url = f'https://{host}:{server.port}'
                    result = measure(url, '--ca', cert, *args)[0]
                    self.assertEqual((result['errors'], result['output_tokens']), (0, 24))
                    self.assertEqual(result['server'], 'tokamak')
                result = measure(url, '--insecure', '--no-keep-alive', *args)[0]
                self.assertEqual(result['errors'], 0)
                done = measure(url, *args, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(json.loads(done.stdout)['errors_by_kind'], {'connect': 6})
                self.assertIn('not trusted', done.stderr)
                done = measure(url, '--ca', key, *args, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn('--ca', done.stderr)
                done = measure(server.url, *args, check=False)  # without TLS
                self.assertEqual(done.returncode, 1)
            cert, key = support.make_certificate(folder, 'bench', names='DNS:example.org')
            with support.Server('--tls-cert', cert, '--tls-key', key) as server:
                for host in ('localhost', '127.0.0.1'):
                    done = measure(f'https://{host}:{server.port}', '--ca', cert, *args, check=False)
                    self.assertEqual(done.returncode, 1)
                    self.assertIn('mismatch', done.stderr)
        done = measure('http://127.0.0.1:1', '--insecure', *args, check=False)
        self.assertEqual(done.returncode, 2)


class Odd(http.server.BaseHTTPRequestHandler):
    """A chat server that behaves as `behavior` says. Uses HTTP/1.0: the end of the connection ends
    the answer."""

    def log_message(self, *_):
        pass

    def say(self, **fields):
        self.wfile.write(b'data: ' + json.dumps(fields).encode() + b'\n\n')
        self.wfile.flush()

    def do_GET(self):
        self.send_error(501)

    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        getattr(self, self.server.behavior)()

    def begin(self):
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.end_headers()
        self.say(choices=[{'delta': {'role': 'assistant', 'content': ''}}])

    def text(self, text, reason=None):
        self.say(choices=[{'delta': {'content': text}, 'finish_reason': reason}])

    def without_usage_and_done(self):
        self.begin()
        for _ in range(3):
            self.wfile.write(b': keep-alive\n\n')
            self.text('a')
        self.text('', 'length')

    def reasoning_and_usage_in_an_empty_chunk(self):
        self.begin()
        self.say(choices=[{'delta': {'reasoning_content': 'hm'}}])
        self.text('a', 'stop')
        self.say(choices=[], usage={'prompt_tokens': 10, 'completion_tokens': 40})
        self.wfile.write(b'data: [DONE]\n\n')

    def usage_in_every_chunk(self):
        self.begin()
        for i in (1, 2):
            self.say(choices=[{'delta': {'content': 'a'}}], error=None,
                     usage={'prompt_tokens': 10, 'completion_tokens': i})
        self.text('', 'stop')

    def error_in_the_stream(self):
        self.begin()
        self.text('a')
        self.say(error={'message': 'out of memory', 'code': 500})
        self.wfile.write(b'data: [DONE]\n\n')

    def closed_in_the_stream(self):
        self.begin()
        self.text('a')

    def reset_at_once(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        self.connection.close()

    def too_many(self):
        self.send_error(429)

    def nothing_ever(self):
        self.server.closing.wait(support.PATIENCE)

    def no_json(self):
        self.begin()
        self.wfile.write(b'data: <html>\n\n')

    def slow(self):
        with self.server.lock:
            self.server.ended_before.append(self.server.ended)
        self.begin()
        self.text('a')
        time.sleep(0.2)
        with self.server.lock:
            self.server.ended += 1
        self.text('', 'stop')

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ConnectionError, ValueError, OSError):  # the client left, or we closed
            self.close_connection = True


class OtherServers(unittest.TestCase):
    def measure(self, behavior, *args):
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Odd)
        server.behavior, server.closing = behavior, threading.Event()
        server.lock, server.ended, server.ended_before = threading.Lock(), 0, []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            load = [] if '--replay' in args or '--rate' in args else ['--concurrency', '2']
            done = measure(f'http://127.0.0.1:{server.server_port}', *load, '--requests', '4',
                           '--input', '3', '--output', '3', *args, check=False)
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()
            server.server_close()
        self.ended_before = server.ended_before
        return json.loads(done.stdout.splitlines()[0]), done

    def test_a_load_begins_when_the_one_before_has_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = folder + '/trace'
            for args in (('--rate', '100,200', '--trace', trace), ('--replay', trace)):
                _, done = self.measure('slow', *args)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(len(done.stdout.splitlines()), 2)
                self.assertEqual(len(self.ended_before), 8)
                self.assertGreaterEqual(min(self.ended_before[4:]), 4)

    def test_answers(self):
        for behavior, tokens, without in (('without_usage_and_done', 3, 4),
                                          ('reasoning_and_usage_in_an_empty_chunk', 40, 0),
                                          ('usage_in_every_chunk', 2, 0)):
            with self.subTest(behavior):
                result, done = self.measure(behavior)
                self.assertEqual((result['errors'], done.returncode), (0, 0), done.stderr)
                self.assertEqual(result['output_tokens'], 4 * tokens)
                self.assertEqual(result['without_usage'], without)
                self.assertEqual(result['ttft_ms']['count'], 4)

    def test_failures(self):
        for behavior, kind, says in (('error_in_the_stream', 'server', 'out of memory'),
                                     ('closed_in_the_stream', 'incomplete', 'finish_reason'),
                                     ('reset_at_once', 'closed', 'answer'),
                                     ('too_many', 'http_429', '429'),
                                     ('nothing_ever', 'timeout', 'too long'),
                                     ('no_json', 'malformed', 'JSON')):
            with self.subTest(behavior):
                result, done = self.measure(behavior, '--timeout-seconds', '1')
                self.assertEqual(result['errors_by_kind'], {kind: 4}, done.stderr)
                self.assertEqual(done.returncode, 1)
                self.assertIn(says, done.stderr)

    def test_a_warm_up_that_fails_ends_it(self):
        done = measure('http://127.0.0.1:1', '--concurrency', '1', '--warmup', '1', check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ''))
        self.assertIn('warm-up', done.stderr)

    def test_a_plot_stays_as_it_was_when_no_load_begins(self):
        with tempfile.TemporaryDirectory() as folder:
            plot = pathlib.Path(folder) / 'a.svg'
            plot.write_text('old')
            for url, *args in (('http://there-is-no-such-host.invalid:1',),
                               ('http://127.0.0.1:1', '--warmup', '1')):
                done = measure(url, '--concurrency', '1', '--plot', str(plot), *args, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, ''))
                self.assertEqual(plot.read_text(), 'old')
                self.assertEqual(list(pathlib.Path(folder).iterdir()), [plot])
            plot.unlink()
            done = measure(url, '--concurrency', '1', '--plot', '/dev/stdout', *args, check=False)
            self.assertEqual((done.returncode, done.stdout), (1, ''))

    def test_a_plot_that_cannot_be_written_is_found_first(self):
        done = measure('http://127.0.0.1:1', '--concurrency', '1', '--plot', '/nowhere/a.svg',
                       check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ''))
        self.assertIn('/nowhere/a.svg', done.stderr)


class Trace(unittest.TestCase):
    def test_operations_lie_in_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'trace.json'
            out = tokamak('bench', 'latency', support.model_path(), '--batch', '1,2',
                          '--prompt-tokens', '8', '--output-tokens', '4', '--device', 'cpu',
                          '--json', '--trace', str(path))
            self.assertNotIn('gaps between steps', out.stderr)  # appears only with --profile
            events = json.loads(path.read_text())['traceEvents']
        names = [e['args']['name'] for e in events if e['name'] == 'process_name']
        self.assertEqual(names, ['batch 1', 'batch 2'])
        for run in (0, 1):
            of_run = [e for e in events if e['pid'] == run and e['ph'] == 'X']
            steps = [e for e in of_run if e['name'] == 'step']
            # One step for the prompts and three for the tokens after the first. One more step if
            # the second request came after the first step had begun.
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
