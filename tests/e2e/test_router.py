#!/usr/bin/env python3
"""Two servers behind smg, a router for OpenAI-compatible servers, started as docs/operations.md
says."""

import concurrent.futures
import json
import pathlib
import re
import socket
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

import support
from support import Server

SMG = pathlib.Path(sys.executable).parent / 'smg'
DOCS = support.ROOT / 'docs' / 'operations.md'
TEXT = 'A harbor town in the north, where the fog comes in at noon and stays until the evening. '


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def documented_options():
    """The options of the command in the docs, without hosts and ports, which differ here."""
    command = re.search(r'^smg launch (.*?[^\\])\n', DOCS.read_text(), re.M | re.S).group(1)
    words = command.replace('\\\n', ' ').split()
    return words[words.index('--policy'):]


class Router:
    def __init__(self, servers):
        self.port = free_port()
        self.process = subprocess.Popen(
            [str(SMG), 'launch', '--host', '127.0.0.1', '--port', str(self.port), '--worker-urls',
             *(server.url for server in servers), '--prometheus-port', str(free_port()),
             *documented_options()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def get(self, path, body=None):
        """Returns (HTTP status, bytes); (0, b'') if nobody listens."""
        request = urllib.request.Request(
            f'http://127.0.0.1:{self.port}{path}', data=body and json.dumps(body).encode(),
            headers={'Content-Type': 'application/json'})
        try:
            with urllib.request.urlopen(request, timeout=support.PATIENCE) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except urllib.error.URLError:
            return 0, b''

    def complete(self, model, prompt, **fields):
        body = {'model': model, 'prompt': prompt, 'max_tokens': 4, 'temperature': 0, **fields}
        return self.get('/v1/completions', body)

    def healthy(self):
        status, body = self.get('/workers')
        return sum(w['is_healthy'] for w in json.loads(body)['workers']) if status == 200 else 0

    def wait_for(self, healthy):
        deadline = time.monotonic() + support.PATIENCE
        while self.healthy() != healthy:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f'the router sees {self.healthy()} servers, not {healthy}')
            time.sleep(0.1)


def served(server):
    return server.health()['prompt_tokens']


@unittest.skipUnless(SMG.exists(), 'smg is not installed')
class BehindARouter(unittest.TestCase):
    def test_conversations_stay_where_their_prefix_is_and_servers_may_go(self):
        with Server('--threads', '1') as first, Server('--threads', '1') as second, \
                Router([first, second]) as router:
            router.wait_for(2)
            model = first.health()['model']
            # The answer is that of a server.
            prompt = TEXT * 4
            status, body = router.complete(model, prompt)
            self.assertEqual(status, 200)
            _, alone = first.request('/v1/completions', {
                'model': model, 'prompt': prompt, 'max_tokens': 4, 'temperature': 0})
            self.assertEqual(json.loads(body)['choices'], alone['choices'])
            # Streams pass through.
            status, body = router.complete(model, prompt, stream=True)
            events = [line for line in body.decode().splitlines() if line]
            self.assertEqual((status, events[-1]), (200, 'data: [DONE]'))
            text = ''.join(json.loads(e[6:])['choices'][0]['text'] for e in events[:-1])
            self.assertEqual(text, alone['choices'][0]['text'])
            # Longer prompts with the same beginning find it cached.
            for more in range(1, 4):
                _, body = router.complete(model, prompt + 'More. ' * more)
                cached = json.loads(body)['usage']['prompt_tokens_details']['cached_tokens']
                self.assertGreater(cached, 60)
            # Many prompts at once reach both servers.
            before = served(first), served(second)
            with concurrent.futures.ThreadPoolExecutor(24) as pool:
                calls = [pool.submit(router.complete, model, f'{i} {i} {i}: ' + TEXT, max_tokens=48)
                         for i in range(48)]
                self.assertEqual({call.result()[0] for call in calls}, {200})
            for server, tokens in zip((first, second), before):
                self.assertGreater(served(server), tokens)
            # When one dies, the other answers.
            first.process.kill()
            for i in range(8):
                self.assertEqual(router.complete(model, f'{i} {TEXT}')[0], 200, i)
            router.wait_for(1)
            # The other drains: the answer under way ends.
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                running = served(second)
                last = pool.submit(router.complete, model, TEXT, max_tokens=200)
                second.wait_until(lambda health: health['prompt_tokens'] > running, 'it runs')
                self.assertEqual(second.terminate(), 0)
                status, body = last.result()
                self.assertEqual(status, 200)
                self.assertGreater(json.loads(body)['usage']['completion_tokens'], 100)
            self.assertGreaterEqual(router.complete(model, TEXT)[0], 500)


if __name__ == '__main__':
    support.main()
