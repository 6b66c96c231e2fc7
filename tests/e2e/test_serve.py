#!/usr/bin/env python3
"""Tests what operators rely on: draining, cancelling, signals, idling, keys."""

import fcntl
import http.client
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import tempfile
import termios
import threading
import time
import unittest

import support
from support import Server

LONG = {'prompt': 'Once upon a time', 'max_tokens': 4000, 'ignore_eos': True}


def send(server, body):
    """Sends a request over its own socket and returns that, with the answer unread."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(('127.0.0.1', server.port), timeout=support.PATIENCE)
    connection.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: '
                       b'application/json\r\nContent-Length: %d\r\n\r\n%s' % (len(data), data))
    return connection


class Serve(unittest.TestCase):
    def test_a_client_that_goes_away_is_cancelled(self):
        with Server() as server:
            for stream in (True, False):
                connection = send(server, dict(LONG, stream=stream, n=3))
                server.wait_until(lambda h: h['running'] == 3, 'three sequences run')
                connection.close()
                server.wait_until(lambda h: h['running'] == 0 and h['used_blocks'] == 0,
                                  'nothing runs')
            self.assertLess(server.health()['generated_tokens'], 4000)

    def test_sigterm_finishes_what_runs(self):
        with Server() as server:
            answers = []
            body = dict(LONG, max_tokens=40)
            request = threading.Thread(
                target=lambda: answers.append(server.request('/v1/completions', body)))
            request.start()
            server.wait_until(lambda h: h['running'] == 1, 'it runs')
            self.assertEqual(server.terminate(), 0)
            request.join()
            status, answer = answers[0]
            self.assertEqual(status, 200)
            self.assertEqual(answer['usage']['completion_tokens'], 40)

    def test_sigterm_gives_up_after_a_while(self):
        with Server('--drain-seconds', '0.3') as server:
            answers = []
            request = threading.Thread(
                target=lambda: answers.append(server.request('/v1/completions', LONG)))
            request.start()
            server.wait_until(lambda h: h['running'] == 1, 'it runs')
            self.assertEqual(server.terminate(), 0)
            request.join()
            self.assertEqual(answers[0][0], 503)

    def test_sigint_and_twice(self):
        with Server('--drain-seconds', '1000') as server:
            connection = send(server, LONG)
            server.wait_until(lambda h: h['running'] == 1, 'it runs')
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            server.process.send_signal(signal.SIGINT)
            self.assertEqual(server.process.wait(timeout=support.PATIENCE), 0)
            connection.close()

    def at_terminal(self, *args, hangups=signal.SIG_DFL):
        """Starts a server whose controlling terminal and stderr are a new pseudo-terminal; also
        returns the terminal's other end."""
        ours, its = pty.openpty()

        def take_terminal():
            os.setsid()
            signal.signal(signal.SIGHUP, hangups)
            fcntl.ioctl(its, termios.TIOCSCTTY, 0)

        process = subprocess.Popen(
            [support.BINARY, 'serve', support.model_path(), '--port', '0', *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=its,
            preexec_fn=take_terminal)
        os.close(its)
        self.addCleanup(os.close, ours)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, ours, int(self.read_until(ours, r'listening on http://[^ ]*:(\d+)\s'))

    def read_until(self, terminal, pattern):
        said = ''
        while not (found := re.search(pattern, said)):
            ready, _, _ = select.select([terminal], [], [], support.PATIENCE)
            self.assertTrue(ready, f'{pattern} in {said}')
            said += os.read(terminal, 4096).decode()
        return found[1]

    def stream_at(self, port, tokens=100):
        connection = http.client.HTTPConnection('127.0.0.1', port, timeout=support.PATIENCE)
        connection.request('POST', '/v1/completions', json.dumps({
            'prompt': 'a', 'max_tokens': tokens, 'ignore_eos': True, 'stream': True}),
            {'Content-Type': 'application/json'})
        return connection.getresponse()

    def test_a_terminal_that_hangs_up_lets_requests_finish(self):
        process, _, port = self.at_terminal('--drain-seconds', '1000')
        answer = self.stream_at(port)
        answer.readline()
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)  # one from the shell, one from the system
        self.assertIn(b'[DONE]', answer.read())
        self.assertEqual(process.wait(timeout=support.PATIENCE), 0)

    def test_a_terminal_is_told_what_a_signal_does(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process, terminal, port = self.at_terminal('--drain-seconds', '1000')
            answer = self.stream_at(port, 4000)
            answer.readline()
            process.send_signal(number)
            self.read_until(terminal, '(finishing running requests; once more to cancel them)')
            process.send_signal(number)
            self.read_until(terminal, '(cancelling running requests)')
            self.assertIn(b'shutting_down', answer.read())
            self.assertEqual(process.wait(timeout=support.PATIENCE), 0)

    def test_a_hangup_without_a_terminal_is_a_line_in_the_log(self):
        with Server(start_new_session=True) as server:
            server.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + support.PATIENCE
            while not any('SIGHUP' in line for line in server.log):
                self.assertLess(time.monotonic(), deadline, server.log)
                time.sleep(0.02)
            self.assertEqual(server.health()['status'], 'ok')
            self.assertEqual(server.terminate(), 0)

    def test_nohup_keeps_hangups_away(self):
        process, _, port = self.at_terminal(hangups=signal.SIG_IGN)
        process.send_signal(signal.SIGHUP)
        answer = self.stream_at(port)
        self.assertIn(b'[DONE]', answer.read())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=support.PATIENCE), 0)

    def test_idle_uses_no_cpu(self):
        with Server() as server:
            server.request('/v1/completions', {'prompt': 'a', 'max_tokens': 4})
            time.sleep(0.5)
            before = server.cpu_seconds()
            time.sleep(3)
            used = server.cpu_seconds() - before
            support.report('CPU seconds in 3 s of idling', round(used, 2))
            self.assertLess(used, 0.1)

    def test_keys_and_other_machines(self):
        with tempfile.NamedTemporaryFile('w') as keys:
            keys.write('secret\n')
            keys.flush()
            with Server('--host', '0.0.0.0', '--api-key-file', keys.name) as server:
                self.assertEqual(server.request('/v1/models')[0], 401)
                self.assertEqual(server.request('/v1/models', headers={
                    'Authorization': 'Bearer secret'})[0], 200)
        refused = support.tokamak('serve', support.model_path(), '--host', '0.0.0.0', '--port',
                                  '0', check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn('--insecure', refused.stderr)

    def test_a_port_in_use_is_named(self):
        with Server() as server:
            second = support.tokamak('serve', support.model_path(), '--port', str(server.port),
                                     check=False)
            self.assertEqual(second.returncode, 1)
            self.assertIn(str(server.port), second.stderr)

    def test_max_logprobs_bounds_the_alternatives(self):
        body = {'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 2, 'logprobs': True,
                'prompt_logprobs': 30}
        with Server('--max-logprobs', '30') as server:
            status, answer = server.request('/v1/chat/completions', dict(body, top_logprobs=30))
            self.assertEqual(status, 200, answer)
            for token in answer['choices'][0]['logprobs']['content']:
                tops = [top['logprob'] for top in token['top_logprobs']]
                self.assertEqual(len(tops), 30)
                self.assertEqual(tops, sorted(tops, reverse=True))
            for field in ('top_logprobs', 'prompt_logprobs'):
                status, answer = server.request('/v1/chat/completions', dict(body, **{field: 31}))
                self.assertEqual((status, answer['error']['param']), (400, field))

    def test_flags_are_the_defaults_of_requests(self):
        # The bias keeps one token on top until the penalties outweigh it.
        body = {'prompt': 'One two one two one', 'max_tokens': 16, 'return_token_ids': True,
                'ignore_eos': True, 'logit_bias': {'1000': 14}}

        def complete(server, **fields):
            status, answer = server.request('/v1/completions', {**body, **fields})
            self.assertEqual(status, 200, answer)
            return answer['choices'][0]['token_ids']
        with Server() as server:
            greedy = complete(server, temperature=0)
            penalized = complete(server, temperature=0, presence_penalty=2, frequency_penalty=2)
            self.assertNotEqual(greedy, penalized)
        with Server('--temperature', '0', '--presence-penalty', '2', '--frequency-penalty', '2') as server:
            self.assertEqual(complete(server), penalized)
            self.assertEqual(complete(server, presence_penalty=0, frequency_penalty=0), greedy)
            model = server.request('/v1/models')[1]['data'][0]
            self.assertEqual(model['default_sampling_params'], {
                'temperature': 0, 'presence_penalty': 2, 'frequency_penalty': 2})
            text = server.request('/detokenize', {'tokens': [1000]})[1]['text']
        with Server('--temperature', '0', '--dry-multiplier', '5') as server:
            self.assertNotEqual(complete(server), greedy)
            self.assertEqual(complete(server, dry_sequence_breakers=[text]), greedy)
        with Server('--temperature', '0', '--dry-multiplier', '5', '--dry-sequence-breaker', 'x',
                    '--dry-sequence-breaker', text) as server:
            self.assertEqual(complete(server), greedy)
            self.assertNotEqual(complete(server, dry_sequence_breakers=[]), greedy)
            model = server.request('/v1/models')[1]['data'][0]
            self.assertEqual(model['default_sampling_params']['dry_sequence_breakers'], ['x', text])
        refused = support.tokamak('serve', support.model_path(), '--port', '0', '--top-p', '5',
                                  check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn('error: --top-p: must be in (0, 1]', refused.stderr)

    def test_a_full_queue_is_refused(self):
        with Server('--max-seqs', '1', '--max-queue', '2') as server:
            connections = [send(server, LONG)]
            server.wait_until(lambda h: h['running'] == 1, 'one runs')
            connections += [send(server, LONG) for _ in range(2)]
            server.wait_until(lambda h: h['waiting'] == 2, 'the queue is full')
            status, answer = server.request('/v1/completions', {'prompt': 'a'})
            self.assertEqual(status, 429, answer)
            self.assertIn('queue', answer['error']['message'])
            for connection in connections:
                connection.close()

    def test_a_recorded_run_is_repeated(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + '/run.rec'
            with Server('--record', path, '--num-blocks', '40', '--max-batch-tokens', '16',
                        '--threads', '1') as server:
                leaver = send(server, dict(LONG, max_tokens=400))
                threads = [threading.Thread(target=server.request, args=('/v1/completions', {
                    'prompt': 'The quick brown fox' * i, 'max_tokens': 20, 'n': 2,
                    'temperature': 1.0, 'logprobs': 2, 'stop': ['the']})) for i in range(1, 7)]
                for thread in threads:
                    thread.start()
                threads[0].join()
                leaver.close()
                for thread in threads:
                    thread.join()
                self.assertEqual(server.terminate(), 0)
            for args in ([], ['--schedule-only']):
                counts = json.loads(support.tokamak('replay', path, '--json', *args).stdout)
                self.assertEqual(counts['requests'], 7)
                self.assertGreater(counts['tokens'], 50)
            with open(path, 'r+b') as file:
                file.seek(200)
                file.write(b'\xff' * 8)
            damaged = support.tokamak('replay', path, check=False)
            self.assertEqual(damaged.returncode, 1)
            self.assertIn(path, damaged.stderr)

    def test_half_a_request_harms_nobody(self):
        with Server() as server:
            connection = http.client.HTTPConnection('127.0.0.1', server.port)
            connection.putrequest('POST', '/v1/completions')
            connection.putheader('Content-Length', '1000')
            connection.endheaders(b'{"prompt"')
            self.assertEqual(server.request('/v1/completions', {'prompt': 'a', 'max_tokens': 1})[0],
                             200)
            connection.close()
            self.assertEqual(server.terminate(), 0)


if __name__ == '__main__':
    support.main()
