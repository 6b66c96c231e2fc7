"""An error at any CUDA call ends the requests and then the process. Nothing hangs, even if the
device does.

TOKAMAK_CUDA_FAIL_CALL=n makes call n fail. The tests try growing numbers until the process ends
before call n. Then they find the last call of loading by bisection, and try some calls between
these two, among them all calls of one decode step.
TOKAMAK_CUDA_STALL_EVENT=n puts a kernel that never ends before the end of step n. Needs a GPU;
works with any CUDA backend that $TOKAMAK_CUDA_LIBRARY names.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
import unittest

import support
from support import DidNotStart, Server, tokamak

MODEL = str(support.ROOT / 'tests' / 'golden' / 'llama_tied.gguf')
ENGINE = ['--device', 'cuda', '--max-seqs', '4', '--max-context', '64', '--num-blocks', '16']
INJECTED = 'an error injected by fail_call'
TIMEOUT = ['--step-timeout-seconds', '1']
STALLED = 'the device did not finish its work within 1 s'
COMMANDS = [
    ['run', MODEL, '--token-ids', '1,2,3', '--max-tokens', '20', '--json'],
    ['score', MODEL, '--token-ids', ','.join(str(i) for i in range(30))],
    ['bench', 'throughput', MODEL, '--requests', '2', '--input', '10', '--output', '20'],
]
EXIT_SECONDS = 10  # from the first error seen by a client to the end of the process
DECODE_CALLS = 16  # CUDA calls of a decode step that is a graph
LARGEST = 10**6  # the process has ended before this call


def environment(n):
    return {'TOKAMAK_CUDA_FAIL_CALL': str(n)}


def stall(n):
    return {'TOKAMAK_CUDA_STALL_EVENT': str(n)}


class Stream(threading.Thread):
    """A streaming request. `outcome` becomes 'done', 'error' or a description of what went
    wrong."""

    def __init__(self, port, prompt, expected=INJECTED):
        super().__init__()
        self.port, self.prompt, self.expected = port, prompt, expected
        self.outcome = 'no answer'
        self.ended = None
        self.start()

    def run(self):
        try:
            self.outcome = self.ask()
        except (OSError, http.client.HTTPException) as error:
            self.outcome = repr(error)
        self.ended = time.monotonic()

    def ask(self):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=support.PATIENCE)
        body = {'prompt': self.prompt, 'max_tokens': 12, 'ignore_eos': True, 'temperature': 1,
                'seed': 1, 'stream': True}
        connection.request('POST', '/v1/completions', json.dumps(body),
                           {'Content-Type': 'application/json'})
        response = connection.getresponse()
        answer = response.read().decode()
        if response.status != 200:
            # 503: the engine had failed before this request arrived.
            said = response.status in (500, 503) and self.expected in answer
            return 'error' if said else f'{response.status}: {answer}'
        if not answer.endswith('data: [DONE]\n\n'):
            return f'not ended: {answer}'
        if '"error"' in answer:
            return 'error' if self.expected in answer else answer
        return 'done' if answer.count('"finish_reason":"length"') == 1 else answer


class CudaErrors(unittest.TestCase):
    def fail_call(self, n):
        """Serves two requests while call n fails. Returns where it failed: 'load', 'step' or
        'nowhere'."""
        where = self.serve(n)
        print(f'call {n}: {where}', file=sys.stderr, flush=True)
        return where

    def serve(self, n):
        try:
            server = Server(*ENGINE, model=MODEL, env=environment(n))
        except DidNotStart as failure:
            self.assertEqual(failure.code, 1, failure)
            self.assertIn(INJECTED, failure.log)
            return 'load'
        with server:
            streams = [Stream(server.port, [1, 2, 3]), Stream(server.port, list(range(4, 24)))]
            for stream in streams:
                stream.join()
                self.assertIn(stream.outcome, ('done', 'error'), f'call {n}')
            if all(stream.outcome == 'done' for stream in streams) and self.is_well(server):
                code = server.terminate()
                if code == 0:
                    return 'nowhere'
                self.assertEqual(code, 1, f'call {n}: {server.log}')  # failed in a remaining step
                return 'step'
            self.await_end(server, streams, INJECTED, f'call {n}')
            return 'step'

    def await_end(self, server, streams, error, what):
        deadline = min(s.ended for s in streams) + EXIT_SECONDS
        while self.is_well(server, error):
            self.assertLess(time.monotonic(), deadline, f'{what}: /health is 200')
            time.sleep(0.01)
        try:
            code = server.process.wait(timeout=max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.fail(f'{what}: the server did not exit: {server.log}')
        self.assertEqual(code, 1, f'{what}: {server.log}')

    def is_well(self, server, error=INJECTED):
        """False if /health says that the engine has failed, or if nothing answers."""
        try:
            status, health = server.request('/health')
        except (OSError, http.client.HTTPException):
            return False
        if status == 200:
            self.assertEqual(health['status'], 'ok')
            return True
        self.assertEqual((status, health['status']), (503, 'failed'))
        self.assertIn(error, health['error'])
        return False

    def test_a_step_that_never_ends(self):
        for n in (1, 6):
            with Server(*ENGINE, *TIMEOUT, model=MODEL, env=stall(n)) as server:
                started = time.monotonic()
                streams = [Stream(server.port, [1, 2, 3], STALLED),
                           Stream(server.port, list(range(4, 24)), STALLED)]
                for stream in streams:
                    stream.join()
                    self.assertEqual(stream.outcome, 'error', f'stall {n}')
                self.await_end(server, streams, STALLED, f'stall {n}')
                support.report(f'stall {n}', f'ended after {time.monotonic() - started:.1f} s')
        for command in COMMANDS:
            result = tokamak(*command, *ENGINE, *TIMEOUT, check=False,
                             timeout=1 + 2 * EXIT_SECONDS, env=stall(1))
            self.assertEqual(result.returncode, 1, (command, result.stderr))
            self.assertIn(STALLED, result.stderr, command)

    def test_a_spread_of_calls(self):
        places = {}
        n = 1
        while n < LARGEST:
            places[n] = self.fail_call(n)
            if places[n] == 'nowhere':
                break
            n = n * 3 // 2 + 1
        self.assertEqual(places[n], 'nowhere', 'the calls never end')
        first_ok = n
        last_load = max(m for m in places if places[m] == 'load')
        first_step = min(m for m in places if places[m] != 'load')
        while first_step - last_load > 1:
            n = (last_load + first_step) // 2
            places[n] = self.fail_call(n)
            if places[n] == 'load':
                last_load = n
            else:
                first_step = n
        tried = [last_load + (first_ok - last_load) * i // 9 for i in range(1, 9)]
        middle = (last_load + first_ok) // 2
        tried += range(middle, middle + DECODE_CALLS)  # consecutive, to cover a whole decode step
        for n in tried:
            if n not in places:
                places[n] = self.fail_call(n)
        steps = sum(place == 'step' for place in places.values())
        support.report('calls', f'{last_load} while loading, {first_ok} at most; of {len(places)} '
                       f'that failed {steps} were of steps')
        self.assertGreater(steps, 5)
        self.commands(last_load)

    def commands(self, last_load):
        """An error ends a command with exit code 1 up to its last step. Its calls while it ends may fail
        unseen. Commands differ in how many calls they make, loading included."""
        for command in COMMANDS:
            codes = []
            for n in (1, last_load // 2, *range(last_load - 20, last_load + 21, 10)):
                result = tokamak(*command, *ENGINE, check=False, env=environment(n))
                if result.returncode != 0:
                    self.assertEqual(result.returncode, 1, (command, n, result.stderr))
                    self.assertIn(INJECTED, result.stderr, (command, n))
                codes.append(result.returncode)
            self.assertEqual(codes, sorted(codes, reverse=True), command)
            self.assertEqual(codes[:3], [1, 1, 1], command)


if __name__ == '__main__':
    if os.path.exists(support.BINARY):
        probe = tokamak('run', MODEL, '--token-ids', '1,2,3', '--max-tokens', '2', '--json',
                        *ENGINE, check=False)
        missing = not os.path.exists('/dev/nvidia0') or 'could not be opened' in probe.stderr
        if probe.returncode != 0 and missing:
            print('skipped: no GPU, or no CUDA backend:', probe.stderr.strip(), file=sys.stderr)
            sys.exit(support.SKIPPED)
    support.main(needs_model=False)
