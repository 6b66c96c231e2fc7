"""Shared by the end-to-end tests: the binary, the model, a server, skipping.

Each test file runs by itself: `tests/e2e/test_cli.py` (set $TOKAMAK_BINARY and $TOKAMAK_MODEL, and
use the Python of scripts/setup-test-refs, if the defaults do not fit). Exit code 77 means skipped.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get('TOKAMAK_BINARY', str(ROOT / 'build' / 'tokamak'))
GOLDENS = ROOT / 'tests' / 'golden' / 'smollm2.json'
SLOW = 'build-asan' in BINARY or 'build-tsan' in BINARY  # an instrumented binary
# Seconds; exceeded only by a hang, not by a slow run.
PATIENCE = float(os.environ.get('TOKAMAK_TEST_PATIENCE', '900' if SLOW else '300'))


def cache_dir():
    cache = os.environ.get('XDG_CACHE_HOME', '')
    base = pathlib.Path(cache) if cache.startswith('/') else pathlib.Path.home() / '.cache'
    return base / 'tokamak'


def model_path():
    named = os.environ.get('TOKAMAK_MODEL')
    return named or str(cache_dir() / 'models' / 'SmolLM2-135M-Instruct.Q4_1.gguf')


def tokamak(*args, text=True, stdin=None, check=True, timeout=None, env=None):
    """Runs the binary to its end. If `stdin` is None, the input is empty."""
    result = subprocess.run([BINARY, *args], capture_output=True, text=text,
                            input=stdin if stdin is not None else ('' if text else b''),
                            timeout=timeout or PATIENCE, env=dict(os.environ, **(env or {})))
    if check and result.returncode != 0:
        raise AssertionError(f'tokamak {args}: exit code {result.returncode}\n{result.stderr}')
    return result


class DidNotStart(AssertionError):
    """A server ended before it listened. `code` is its exit code, -N for signal N."""

    def __init__(self, code, log):
        super().__init__(f'the server did not start (exit code {code}): {log}')
        self.code, self.log = code, log


class Server:
    """A `tokamak serve` on a free port. Use it in a with statement."""

    def __init__(self, *args, model=None, env=None, start_new_session=False):
        self.process = subprocess.Popen(
            [BINARY, 'serve', model or model_path(), '--port', '0', *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, **(env or {})), start_new_session=start_new_session)
        self.log = []
        self.port = None
        too_long = threading.Timer(PATIENCE, self.process.kill)
        too_long.start()
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r'listening on https?://[^ ]*:(\d+)', line)
            if found:
                self.port = int(found.group(1))
                break
        too_long.cancel()
        if self.port is None:
            raise DidNotStart(self.process.wait(), ''.join(self.log))
        # Keep reading the output, so that a full pipe cannot block the server.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        self.log.extend(self.process.stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    @property
    def url(self):
        return f'http://127.0.0.1:{self.port}'

    def request(self, path, body=None, headers=None):
        """Returns (HTTP status, JSON) of a GET, or of a POST if there is a body (bytes or an
        object)."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=body, headers={
            'Content-Type': 'application/json', **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b'null')

    def health(self):
        return self.request('/health')[1]

    def metrics(self):
        """The samples of /metrics, by name and labels."""
        with urllib.request.urlopen(self.url + '/metrics', timeout=PATIENCE) as response:
            lines = response.read().decode().splitlines()
        samples = (line.rsplit(' ', 1) for line in lines if line and line[0] != '#')
        return {name: float(value) for name, value in samples}

    def wait_until(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition(self.health()):
            if time.monotonic() > deadline:
                raise AssertionError(f'gave up waiting until {what}: {self.health()}')
            time.sleep(0.02)

    def terminate(self):
        """Sends SIGTERM and returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE)

    def wait_for_log(self):
        """Call it after the process has ended: waits until `log` is complete."""
        self._reader.join()

    def rss_mb(self):
        status = pathlib.Path(f'/proc/{self.process.pid}/status').read_text()
        return int(re.search(r'VmRSS:\s+(\d+) kB', status).group(1)) / 1024

    def cpu_seconds(self):
        return time.clock_gettime(~self.process.pid << 3 | 2)  # clock_getcpuclockid(3)

    def client(self, **options):
        import openai
        return openai.OpenAI(base_url=self.url + '/v1', api_key='none', max_retries=0,
                             timeout=PATIENCE, **options)


def joined_calls(pieces):
    """Joins the tool calls of a stream's deltas; returns the name and the arguments of each."""
    calls = []
    for piece in pieces:
        if piece.id:  # the first piece of a call
            assert piece.index == len(calls) and piece.type == 'function', piece
            assert piece.function.name and piece.function.arguments == '', piece
            calls.append((piece.function.name, ''))
        else:
            assert piece.index == len(calls) - 1 and piece.function.name is None, piece
            calls[-1] = (calls[-1][0], calls[-1][1] + piece.function.arguments)
    return calls


def make_certificate(folder, name, names='DNS:localhost,IP:127.0.0.1'):
    """Makes a self-signed certificate and returns its file and the key's. Needs openssl. `name`
    becomes the common name."""
    cert, key = f'{folder}/cert.pem', f'{folder}/key.pem'
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt',
                    'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', f'/CN={name}',
                    '-addext', f'subjectAltName={names}', '-keyout', key, '-out', cert],
                   check=True, capture_output=True)
    return cert, key


@contextlib.contextmanager
def timer():
    """Yields a list that receives the block's duration in seconds."""
    seconds = []
    start = time.perf_counter()
    yield seconds
    seconds.append(time.perf_counter() - start)


def report(what, value):
    """Prints a measurement for people; tests never assert on it."""
    print(f'measured: {what}: {value}', file=sys.stderr, flush=True)


def main(needs_model=True):
    if not os.path.exists(BINARY):
        print(f'skipped: {BINARY} is not built', file=sys.stderr)
        sys.exit(SKIPPED)
    if needs_model and not os.path.exists(model_path()):
        print(f'skipped: {model_path()} is not there; run scripts/fetch-model', file=sys.stderr)
        sys.exit(SKIPPED)
    program = unittest.main(module='__main__', exit=False, verbosity=2, warnings='ignore')
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.testsRun and len(result.skipped) == result.testsRun else 0)
