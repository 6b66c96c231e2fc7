#!/usr/bin/env python3
"""Requests as raw bytes, and the exact answers to them: raw_requests.jsonl has one case per line.

    tests/e2e/test_raw_requests.py             compares
    tests/e2e/test_raw_requests.py --record    writes the answers of $TOKAMAK_BINARY into the file

A case is an object:
  name      what it tries
  server    "plain", "keys" (with an API key and an allowed origin) or "embed"
  send      the bytes (a string, one byte per character; [string, times] repeats it; a list joins)
  post      instead of send: a path. The head of an ordinary POST is made, and `body` sent with it
  then      bytes that are sent once there is an answer to the first ones
  mask      true: the body of the answer is not compared
  answers   status line, headers and body of each answer
  end       how the connection was left: "closed", "open" for another request, or "waits" for more

Headers that all answers have are left out of `answers`; one that is missing is there with a "-".
Text that changes from run to run or between processors is replaced by "*".
"""

import json
import pathlib
import re
import socket
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

import support
import tiny_model

CASES = pathlib.Path(__file__).with_name('raw_requests.jsonl')
TEMPLATE = """
{%- for tool in tools or [] -%}[{{ tool | tojson }}]{%- endfor -%}
{%- for message in messages -%}<{{ message.role }}>{{ message.content }}
{%- for call in message.tool_calls or [] -%}({{ call | tojson }}){%- endfor -%}
{%- endfor -%}
{{ mood }}{{ reasoning_effort }}{% if add_generation_prompt %}<assistant>{% endif %}"""
KEYS = 'secret\nurgent priority=5\n'
EVERYWHERE = ('Cache-Control: no-store', 'X-Content-Type-Options: nosniff',
              'Referrer-Policy: no-referrer')
MASKS = [(re.compile(pattern), text) for pattern, text in [
    (r'"id":"(cmpl|chatcmpl|embd)-[0-9a-f]{24}"', r'"id":"\1-*"'),
    (r'"created":\d+', '"created":"*"'), (r'"system_fingerprint":"[^"]+"', '"system_fingerprint":"*"'),
    (r'"embedding":\[[^\]]+\]', '"embedding":["*"]'), (r'"embedding":"[^"]+"', '"embedding":"*"')]]
SEED = re.compile(r'"seed":\d+')
# No case asks for this path. An answer to it means that the connection was still open for requests.
SENTINEL = b'SENTINEL /health HTTP/1.1\r\nHost: localhost\r\n\r\n'
SILENCE = 1.5  # seconds without a byte after which --record expects none


def to_bytes(data):
    if isinstance(data, str):
        return data.encode('latin-1')
    if len(data) == 2 and isinstance(data[1], int):
        return to_bytes(data[0]) * data[1]
    return b''.join(map(to_bytes, data))


def request_of(case):
    if 'post' not in case:
        return to_bytes(case['send'])
    body = to_bytes(case['body'])
    return (f'POST {case["post"]} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n'
            f'Content-Length: {len(body)}\r\n\r\n').encode() + body


class Client:
    """A connection, and the answers that came over it."""

    def __init__(self, port, request, patience):
        self.socket = socket.create_connection(('127.0.0.1', port), timeout=patience)
        self.data = b''
        self.closed = False
        self.methods = []
        self.gives_seed = b'"seed"' in request
        self.send(request)

    def send(self, data):
        self.methods += re.findall(rb'(?:^|\r\n)([A-Z]+) /', data)
        try:
            self.socket.sendall(data)
        except OSError:  # it has answered and closed
            pass

    def fill(self):
        """Reads more. Returns False at the end of the connection or after a silence."""
        try:
            data = self.socket.recv(65536)
        except TimeoutError:
            return False
        except OSError:
            data = b''
        self.closed = not data
        self.data += data
        return bool(data)

    def take(self, size):
        """Returns `size` bytes, or fewer if the connection ends first."""
        while len(self.data) < size and self.fill():
            pass
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def take_line(self):
        while b'\r\n' not in self.data and self.fill():
            pass
        line, _, self.data = self.data.partition(b'\r\n')
        return line.decode('latin-1')

    def answer(self, masked):
        """Returns the next answer, {status, headers, body}, or None."""
        status = self.take_line()
        if not status:
            return None
        headers = list(iter(self.take_line, ''))
        if status == 'HTTP/1.1 100 Continue':
            return {'status': status, 'headers': headers, 'body': ''}
        method = self.methods.pop(0) if self.methods else b''
        body, headers = self.take_body(headers, status.split()[1] == '204' or method == b'HEAD')
        shown = [header for header in headers if header not in EVERYWHERE]
        shown += ['-' + header for header in EVERYWHERE if header not in headers]
        text = body.decode()
        for pattern, replacement in MASKS:
            text = pattern.sub(replacement, text)
        if not self.gives_seed:
            text = SEED.sub('"seed":"*"', text)
        return {'status': status, 'headers': shown, 'body': '*' if masked and text else text}

    def take_body(self, headers, none):
        """Returns the body, and the headers with "right" in place of a correct length."""
        if none:
            return b'', [re.sub('^(Content-Length:).*', r'\1 *', header) for header in headers]
        if 'Transfer-Encoding: chunked' in headers:
            body = b''
            while size := int(self.take_line(), 16):
                body += self.take(size)
                assert self.take_line() == ''
            assert self.take_line() == ''
            return body, headers
        length = next((int(h.split()[1]) for h in headers if h.startswith('Content-Length:')), None)
        if length is None:  # until the end of the connection
            while self.fill():
                pass
            length = len(self.data)
        body = self.take(length)
        if len(body) == length:
            headers = [re.sub('^(Content-Length:).*', r'\1 right', header) for header in headers]
        return body, headers


def is_sentinel(answer):
    return answer is not None and 'not SENTINEL' in answer['body']


def ask(case, client, count):
    """Returns at most `count` answers. Sends the case's `then` after the first."""
    answers = []
    while len(answers) < count:
        answer = client.answer(case.get('mask', False))
        if answer is None:
            break
        answers.append(answer)
        if 'then' in case and len(answers) == 1:
            client.send(to_bytes(case['then']))
    return answers


def record(case, port):
    client = Client(port, request_of(case), SILENCE)
    answers = ask(case, client, sys.maxsize)
    if client.closed:
        return answers, 'closed'
    client.send(SENTINEL)
    return answers, 'open' if is_sentinel(client.answer(False)) else 'waits'


def compare(case, port):
    client = Client(port, request_of(case), support.PATIENCE)
    answers = ask(case, client, len(case['answers']))
    if case['end'] == 'open':
        client.send(SENTINEL)
        return answers, 'open' if is_sentinel(client.answer(False)) else 'not open'
    if case['end'] == 'waits':
        client.socket.shutdown(socket.SHUT_WR)
    return answers, case['end'] if not client.data and not client.fill() else 'more came'


def run(check):
    """Returns the cases, and what `check` returns for each of them."""
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    with tempfile.TemporaryDirectory(prefix='tokamak-raw-') as folder:
        tiny_model.write(folder, TEMPLATE)
        keys = pathlib.Path(folder) / 'keys'
        keys.write_text(KEYS)
        options = ['--served-model-name', 'tiny', '--no-page', '--no-prefix-cache', '--max-body-bytes',
                   '200000', '--threads', '1']
        embed = support.ROOT / 'tests' / 'golden' / 'hf' / 'qwen3_embedding'
        with support.Server(*options, model=folder) as plain, \
                support.Server(*options, '--api-key-file', str(keys), '--cors-origin',
                               'https://app.example', model=folder) as with_keys, \
                support.Server(*options, model=str(embed)) as embedding, \
                ThreadPoolExecutor(8) as pool:
            ports = {'plain': plain.port, 'keys': with_keys.port, 'embed': embedding.port}
            results = list(pool.map(lambda case: check(case, ports[case['server']]), cases))
            for server in (plain, with_keys, embedding):
                assert server.terminate() == 0, server.log
    return cases, results


class RawRequests(unittest.TestCase):
    maxDiff = None

    def test_each_gets_the_answer_that_it_always_got(self):
        cases, results = run(compare)
        self.assertEqual(len({case['name'] for case in cases}), len(cases))
        for case, (answers, end) in zip(cases, results):
            with self.subTest(case['name']):
                self.assertEqual(answers, case['answers'])
                self.assertEqual(end, case['end'])
        support.report('raw requests', len(cases))


def main():
    if sys.argv[1:] != ['--record']:
        return support.main(needs_model=False)
    cases, results = run(record)
    for case, (answers, end) in zip(cases, results):
        case.update(answers=answers, end=end)
    CASES.write_text(''.join(json.dumps(case) + '\n' for case in cases))


if __name__ == '__main__':
    main()
