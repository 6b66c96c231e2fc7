#!/usr/bin/env python3
"""Makes a server do everything at once, so that its threads meet. Run it under ThreadSanitizer.

    tests/e2e/mixed.py [--seconds 120] [--seed N]

Chats, completions, tokenizing, abandoned streams, broken requests, /metrics, /debug/state, the
page, and signals to reload keys; then SIGTERM while all of that goes on. Every answer must be an
allowed one. The server must drain, exit with 0 and report no race.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import support

KEY = 'k' * 32
TOOL = {'type': 'function', 'function': {'name': 'look', 'parameters': {
    'type': 'object', 'properties': {'where': {'type': 'string'}}}}}


def completion(generator):
    return '/v1/completions', {
        'prompt': generator.choice(['a', 'Once upon a time ' * generator.randrange(1, 9),
                                    ['one', 'two'], [[1, 2, 3], [4, 5]]]),
        'max_tokens': generator.randrange(1, 12), 'n': generator.choice([1, 1, 3]),
        'logprobs': generator.choice([None, 3]), 'echo': generator.random() < 0.3,
        'prompt_logprobs': generator.choice([None, None, 5]), 'stream': generator.random() < 0.5,
        'guided_regex': generator.choice([None, None, '[a-z]{1,8}(, [0-9]{2,4})*']),
        'timings': True, 'priority': -generator.randrange(2), 'seed': 7}


def chat(generator):
    return '/v1/chat/completions', {
        'messages': [{'role': 'user', 'content': 'Hello ' * generator.randrange(1, 20)}],
        'tools': generator.choice([None, [TOOL]]), 'max_tokens': generator.randrange(1, 12),
        'stream': generator.random() < 0.7, 'stream_options': {'include_usage': True},
        'temperature': generator.choice([0, 1.3])}


def tokenize(generator):
    text = 'some words and 漢字 ' * generator.choice([1, 20, 10000])
    return '/tokenize', {'text': text, 'return_pieces': generator.random() < 0.2}


def broken(generator):
    return generator.choice(['/v1/completions', '/v1/chat/completions', '/nowhere']), \
        generator.choice([{'prompt': 5}, {'messages': []}, [], {'prompt': 'a', 'n': 1000}])


def look(generator):
    return generator.choice(['/metrics', '/debug/state', '/health', '/v1/models', '/', '/openapi.json',
                             '/page/app.js']), None


# The kinds of requests, and the probability of leaving each early.
KINDS = [(completion, 0.3), (completion, 0.3), (chat, 0.3), (chat, 0.3), (tokenize, 0.1),
         (broken, 0), (look, 0), (look, 0.1)]


class Client(threading.Thread):
    def __init__(self, server, kind, leaves, seed):
        super().__init__()
        self.server, self.kind, self.leaves = server, kind, leaves
        self.generator = random.Random(seed)
        self.statuses, self.failures = {}, []
        self.stopped = False  # the server is ending: it may refuse or be gone

    def run(self):
        while not self.stopped:
            path, body = self.kind(self.generator)
            if body is not None and isinstance(body, dict):
                body = {name: value for name, value in body.items() if value is not None}
                if not body.get('stream'):
                    body.pop('stream_options', None)
            try:
                status = self.ask(path, body)
            except (OSError, ValueError) as error:
                if not self.stopped:
                    self.failures.append(f'{path}: {error!r}')
                continue
            self.statuses[status] = self.statuses.get(status, 0) + 1
            expected = (400, 404) if self.kind is broken else (200, 429)
            if path == '/debug/state':
                # Before the engine's first snapshot, which a slow step may delay.
                expected += (503,)
            if status not in expected and not self.stopped:
                self.failures.append(f'{path}: {status}')

    def ask(self, path, body):
        request = urllib.request.Request(
            self.server.url + path, data=None if body is None else json.dumps(body).encode(),
            headers={'Content-Type': 'application/json', 'Authorization': f'Bearer {KEY}'})
        try:
            with urllib.request.urlopen(request, timeout=support.PATIENCE) as response:
                if self.generator.random() < self.leaves:
                    response.read(self.generator.randrange(1, 2000))
                else:
                    response.read()
                return response.status
        except urllib.error.HTTPError as error:
            error.read()
            return error.code


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--seconds', type=float, default=120)
    parser.add_argument('--seed', type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    print(f'seed {options.seed}', flush=True)
    with tempfile.TemporaryDirectory() as folder:
        keys, log = f'{folder}/keys', f'{folder}/access.log'
        with open(keys, 'w') as file:
            file.write(KEY + '\n')
        os.chmod(keys, 0o600)
        with support.Server('--api-key-file', keys, '--access-log', log, '--num-blocks', '64',
                            '--max-seqs', '8', '--max-context', '512', '--host-cache-memory', '8M',
                            '--drain-seconds', '3') as server:
            clients = [Client(server, kind, leaves, options.seed + i)
                       for i, (kind, leaves) in enumerate(KINDS)]
            for client in clients:
                client.start()
            end = time.monotonic() + options.seconds
            while time.monotonic() < end:
                time.sleep(min(1, options.seconds / 5))
                server.process.send_signal(signal.SIGHUP)
            for client in clients:
                client.stopped = True
            code = server.terminate()
            for client in clients:
                client.join()
            server.wait_for_log()
            with open(log) as file:
                lines = [json.loads(line) for line in file]
        statuses = {}
        for client in clients:
            for status, count in client.statuses.items():
                statuses[status] = statuses.get(status, 0) + count
        failures = [failure for client in clients for failure in client.failures][:20]
        if code != 0:
            failures.append(f'the server exited with {code}')
        if any('Sanitizer' in line for line in server.log):
            failures.append(''.join(server.log)[-20000:])
        if not statuses.get(200) or len(lines) < sum(statuses.values()):
            failures.append(f'{len(lines)} lines in the access log')
    for failure in failures:
        print('FAILED:', failure)
    print('FAIL' if failures else 'PASS', f'mixed: {options.seconds:.0f} s, answers '
          f'{dict(sorted(statuses.items()))}, {len(lines)} lines in the access log')
    sys.exit(1 if failures else 0)


if __name__ == '__main__':
    if not os.path.exists(support.model_path()):
        print('skipped: no model')
        sys.exit(support.SKIPPED)
    main()
