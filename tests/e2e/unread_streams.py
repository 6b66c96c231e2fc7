"""Streams that nobody reads, and how long a good client waits beside them."""

import json
import socket
import threading
import time

from bad_requests import HEAD

# Unlike the good clients, which use 127.0.0.1.
ELSEWHERE = ('127.0.0.2', 0)
GOOD = json.dumps({'prompt': 'Once upon a time', 'max_tokens': 8, 'temperature': 0,
                   'ignore_eos': True, 'stream': True})
PATIENCE = 120  # seconds for a good stream


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float('nan')


def time_streams(port, seconds):
    """Returns (seconds to the first token, seconds to the end) of repeated streams. A stream that
    takes longer than PATIENCE counts as PATIENCE and is the last."""
    body = GOOD.encode()
    first, whole = [], []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        with socket.create_connection(('127.0.0.1', port), timeout=PATIENCE) as connection:
            connection.sendall(HEAD.format('/v1/completions', len(body)).encode() + body)
            answer = b''
            try:
                while b'[DONE]' not in answer:
                    connection.settimeout(max(0.001, PATIENCE - (time.perf_counter() - start)))
                    data = connection.recv(65536)
                    if not data:
                        raise OSError(f'the stream ended early: {answer[-200:]}')
                    answer += data
                    if b'"text":' in answer and len(first) == len(whole):
                        first.append(time.perf_counter() - start)
            except TimeoutError:
                whole.append(PATIENCE)
                first += [PATIENCE] * (len(whole) - len(first))
                break
        whole.append(time.perf_counter() - start)
    return first, whole


class DeafStreams(threading.Thread):
    """Long streams from another address. Their clients read 4 KiB every 10 s, so that the server
    does not drop them."""

    def __init__(self, port, count):
        super().__init__(daemon=True)
        body = json.dumps({'prompt': [100] * 32, 'max_tokens': 8000, 'ignore_eos': True,
                           'stream': True})
        request = (HEAD.format('/v1/completions', len(body)) + body).encode()
        self.sockets = []
        self.over = threading.Event()
        for _ in range(count):
            deaf = socket.socket()
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.bind(ELSEWHERE)
            deaf.connect(('127.0.0.1', port))
            deaf.sendall(request)
            deaf.setblocking(False)
            self.sockets.append(deaf)
        self.start()

    def run(self):
        while not self.over.wait(10):
            for deaf in self.sockets:
                try:
                    deaf.recv(4096)
                except OSError:
                    pass

    def close(self):
        self.over.set()
        self.join()
        for deaf in self.sockets:
            deaf.close()


def check_pauses(server, deaf):
    """Returns (the engine's counts, what is wrong with them while only `deaf` streams are open).
    Waits up to PATIENCE until nothing is wrong: a stream is paused once its rows in flight have
    been computed."""
    end = time.monotonic() + PATIENCE
    while True:
        health = server.health()
        counts = {name: health[name] for name in ('running', 'waiting', 'paused', 'used_blocks')}
        wrong = None
        if counts['paused'] == 0:
            wrong = 'no deaf stream is paused'
        elif counts['running'] + counts['waiting'] > deaf - counts['paused']:
            wrong = 'paused streams run or wait'
        elif counts['running'] == 0 and counts['used_blocks'] > 0:
            wrong = 'paused streams hold blocks'
        if wrong is None or time.monotonic() > end:
            return counts, wrong
        time.sleep(0.1)


def fairness(options, server, failures):
    def report(name, first, whole):
        print(f'  {name}: {len(whole)} streams; first token p50 {percentile(first, 0.5) * 1e3:.0f} ms, '
              f'p99 {percentile(first, 0.99) * 1e3:.0f}, at most {max(first) * 1e3:.0f}; end p50 '
              f'{percentile(whole, 0.5) * 1e3:.0f} ms, p99 {percentile(whole, 0.99) * 1e3:.0f}, at '
              f'most {max(whole) * 1e3:.0f}', flush=True)

    alone = time_streams(server.port, options.seconds)
    report('alone', *alone)
    deaf = DeafStreams(server.port, options.deaf)
    beside = time_streams(server.port, options.seconds)
    report(f'from the moment that {options.deaf} deaf streams came', *beside)
    time.sleep(2 * options.seconds)
    counts, wrong = check_pauses(server, options.deaf)
    if wrong:
        failures.append(f'{wrong}: {counts}')
    later = time_streams(server.port, options.seconds)
    report('later', *later)
    deaf.close()
    if max(beside[1] + later[1]) >= PATIENCE:
        failures.append(f'a good stream was not complete after {PATIENCE} s')
    ratio = percentile(later[0], 0.5) / percentile(alone[0], 0.5)
    return f'the first token took {ratio:.2f} times as long later; the engine had {counts}'
