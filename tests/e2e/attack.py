#!/usr/bin/env python3
"""Malicious clients, and what they do to others.

    tests/e2e/attack.py malformed   [--count 100000] [--seed N]
    tests/e2e/attack.py slow        [--rounds 3] [--seconds 15] [--idle 1000] [--deaf 200]
    tests/e2e/attack.py fairness    [--seconds 15] [--deaf 200]
    tests/e2e/attack.py disconnects [--count 50000] [--clients 8]
    tests/e2e/attack.py timing      [--count 20000]
    tests/e2e/attack.py bombs
    tests/e2e/attack.py grammars
    tests/e2e/attack.py images      [--count 5000]
    tests/e2e/attack.py all                       less than ten minutes on two cores
    tests/e2e/attack.py all --small               what `make test` runs

malformed: requests with every field at its extremes, deep and huge JSON, damaged HTTP. Each gets
4xx; errors about fields name their path. Memory stays bounded, and a client beside them gets its
usual answers.

slow: clients that request long and large answers and never read, idle connections, and headers that
never end. Measures the latencies of four good clients in turns: alone, beside clients that request
the same and read their answers, and beside the bad clients. Bad clients have another address than
the good ones, so both share the engine in turn. Answers that nobody reads may not double the p99.

fairness: another address opens long streams that are not or hardly read. Measures a good client's
time to first token and to the end: alone, when the streams arrive, and later.

disconnects: clients leave at any moment. Nothing runs afterwards and no block is lost.

timing: how long refusals of missing, wrong and nearly right keys take. A rank test must find no
difference. It prints the size that it would have found.

bombs: chat templates that would run for ever or use up memory. Each is refused within 100 ms.

grammars: schemas, patterns and GBNF that would be exponentially large. What is refused is refused within
100 ms of CPU time, and memory stays bounded.

images: decompression bombs, images of absurd sizes, truncated and damaged ones. Each gets 200 or a 400 that
names it, memory stays bounded, and somebody else gets the usual answers to an image.

With --small nothing that depends on time fails. Each part ends with a line that begins with PASS or
FAIL.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import resource
import selectors
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time

import support
from bad_requests import HEAD, Damaged, bad_message, bad_shape, bad_value
from grammar_bombs import grammars
from image_attack import images
from unread_streams import ELSEWHERE, GOOD, fairness, percentile


class Connection:
    """A kept-alive connection to a server."""

    def __init__(self, port):
        self.port = port
        self.socket = None

    def send(self, data):
        if self.socket is None:
            self.socket = socket.create_connection(('127.0.0.1', self.port),
                                                   timeout=support.PATIENCE)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(data)

    def post(self, path, body):
        data = body.encode()
        try:
            self.send(HEAD.format(path, len(data)).encode() + data)
        except OSError:  # it was closed
            self.close()
            self.send(HEAD.format(path, len(data)).encode() + data)
        return self.receive()

    def receive(self):
        """Returns (status, body); status 0 if the connection ended without an answer."""
        answer = b''
        while b'\r\n\r\n' not in answer:
            data = self.socket.recv(65536)
            if not data:
                self.close()
                return 0, b''
            answer += data
        head, _, body = answer.partition(b'\r\n\r\n')
        fields = head.decode().lower().split('\r\n')
        length = next((int(f.split(':')[1]) for f in fields if f.startswith('content-length:')), None)
        while length is not None and len(body) < length or \
                length is None and not body.endswith(b'0\r\n\r\n'):
            data = self.socket.recv(65536)
            if not data:
                break
            body += data
        if 'connection: close' in fields:
            self.close()
        return int(head.split(b' ', 2)[1]), body

    def close(self):
        if self.socket is not None:
            self.socket.close()
        self.socket = None


class GoodClient(threading.Thread):
    """Repeats a short request and records how many seconds each took."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.connection = Connection(port)
        self.seconds, self.failures, self.stopped = [], [], False

    def run(self):
        while not self.stopped:
            start = time.perf_counter()
            try:
                status, body = self.connection.post('/v1/completions', GOOD)
            except OSError as error:
                self.failures.append(repr(error))
                continue
            if status != 200 or b'[DONE]' not in body:
                self.failures.append(f'{status} {body[:200]}')
            self.seconds.append(time.perf_counter() - start)

    def stop(self):
        self.stopped = True
        self.join()
        self.connection.close()
        return self.seconds


def latencies(name, seconds):
    print(f'  {name}: {len(seconds)} requests, p50 {percentile(seconds, 0.5) * 1e3:.1f} ms, '
          f'p99 {percentile(seconds, 0.99) * 1e3:.1f} ms', flush=True)


def malformed(options, server, failures):
    rss = server.rss_mb()
    before = GoodClient(server.port)
    before.start()
    time.sleep(options.seconds)
    latencies('alone', before.stop())
    good = GoodClient(server.port)
    good.start()
    statuses, lock = {}, threading.Lock()

    def attack(number, count):
        generator = random.Random(options.seed * 1000 + number)
        connection = Connection(server.port)
        for _ in range(count):
            kind = generator.random()
            path, body, param = '', '', None
            try:
                if kind < 0.2:
                    damaged = Damaged.make(generator)
                    own = Connection(server.port)
                    own.send(damaged)
                    own.socket.shutdown(socket.SHUT_WR)  # the rest is never sent
                    status, answer = own.receive()
                    own.close()
                    allowed = status in (0, 200) or 400 <= status < 500
                    body = repr(damaged)
                else:
                    make = bad_value if kind < 0.7 else bad_message if kind < 0.85 else bad_shape
                    path, body, param = make(generator)
                    status, answer = connection.post(path, body)
                    allowed = status in (400, 404)
                    if param is not None and allowed:
                        named = json.loads(answer)['error']['param'] or ''
                        allowed = named.startswith(param) or param == 'stream_options'
            except (OSError, ValueError) as error:
                connection.close()
                status, answer, allowed = -1, repr(error), kind < 0.2
            with lock:
                statuses[status] = statuses.get(status, 0) + 1
                if not allowed and len(failures) < 20:
                    failures.append(f'{status} for {path} {body[:200]}: {answer[:300]}')
        connection.close()

    start = time.monotonic()
    threads = [threading.Thread(target=attack, args=(i, options.count // 4)) for i in range(4)]
    for thread in threads:
        thread.start()
    peak = rss
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.2)
        peak = max(peak, server.rss_mb())
    latencies('beside the attack', good.stop())
    failures += good.failures[:5]
    if peak > rss + 256:
        failures.append(f'RSS grew from {rss:.0f} to {peak:.0f} MB')
    if any(status >= 500 for status in statuses):
        failures.append('answers of 500 and more')
    return (f'{sum(statuses.values())} requests in {time.monotonic() - start:.0f} s, '
            f'statuses {dict(sorted(statuses.items()))}; RSS {rss:.0f} MB, at most {peak:.0f}, '
            f'in the end {server.rss_mb():.0f}')


def greedy_request(number):
    """Long streamed answers, half of them with large events; long answers to large bodies; large
    answers that are not streamed; many small answers in a row."""
    kind = number % 5
    if kind == 4:
        return b'GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n' * 1000
    fields = {'prompt': [100 + number] * 32, 'max_tokens': 8000, 'ignore_eos': True, 'stream': True}
    if kind == 1:
        fields['logprobs'] = 20
    elif kind == 3:
        fields.update(prompt=[100 + number] * 128, max_tokens=1, stream=False, prompt_logprobs=20)
    body = json.dumps(fields) + ' ' * (1 << 20 if kind == 2 else 0)
    return (HEAD.format('/v1/completions', len(body)) + body).encode()


def ask(port, count, reads, idle, ready, stop):
    """A process of demanding clients. With `reads` they read their answers. Otherwise they do not,
    and there are also idle connections and headers that never end."""
    os.nice(10)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def connect():
        return socket.create_connection(('127.0.0.1', port), timeout=30, source_address=ELSEWHERE)

    kept = [connect() for _ in range(idle)]
    selector = selectors.DefaultSelector()
    for number in range(count):
        connection = connect()
        kept.append(connection)
        if reads:
            selector.register(connection, selectors.EVENT_READ)
        else:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            connection.sendall(greedy_request(number))
        except OSError:
            pass
    slow = []
    ready.set()
    while not stop.is_set():
        if reads:
            for key, _ in selector.select(0.1):
                try:
                    more = key.fileobj.recv(1 << 20)
                except OSError:
                    more = b''
                if not more:
                    selector.unregister(key.fileobj)
            continue
        while len(slow) < min(count, 100):
            slow.append(connect())
            slow[-1].send(b'GET /health HTTP/1.1\r\nX: ')
            slow[-1].setblocking(False)
        for connection in list(slow):
            try:
                connection.send(b'x')
                connection.recv(1000)  # 408; the server closes the connection
                connection.close()
                slow.remove(connection)
            except BlockingIOError:
                pass
            except OSError:
                connection.close()
                slow.remove(connection)
        time.sleep(0.5)


def slow(options, server, failures):
    kinds = {'alone': None, f'beside {options.deaf} that read': True,
             f'beside {options.deaf} deaf, {options.idle} idle, {min(options.deaf, 100)} slow ones': False}
    results = {name: [] for name in kinds}
    for name, reads in [*kinds.items()] * options.rounds:
        others = None
        if reads is not None:
            ready, stop = multiprocessing.Event(), multiprocessing.Event()
            others = multiprocessing.Process(daemon=True, target=ask, args=(
                server.port, options.deaf, reads, 0 if reads else options.idle, ready, stop))
            others.start()
            if not ready.wait(120):
                failures.append('the others could not connect')
        clients = [GoodClient(server.port) for _ in range(4)]
        for client in clients:
            client.start()
        time.sleep(options.seconds)
        health = server.health()
        left = health['running'] + health['waiting'] + health['paused']
        if others is not None and left <= len(clients) and not options.small:
            failures.append(f'{name}: they had got all that they asked for before the end')
        for client in clients:
            results[name] += client.stop()
            failures += client.failures[:3]
        if others is not None:
            stop.set()
            others.join()
            server.wait_until(lambda h: h['running'] + h['waiting'] + h['preparing'] == 0,
                              'it is quiet')
    for name, seconds in results.items():
        latencies(name, seconds)
    alone, readers, deaf = (percentile(seconds, 0.99) for seconds in results.values())
    if not options.small and deaf > 2 * readers:
        failures.append(f'p99 is {deaf / readers:.2f} times as long as beside clients that read')
    return (f'p99 is {deaf / readers:.2f} times that beside clients that read, {deaf / alone:.2f} times '
            f'that alone; RSS {server.rss_mb():.0f} MB')


def disconnects(options, server, failures):
    start = time.monotonic()
    counts, lock = {'left': 0, 'refused': 0}, threading.Lock()

    def leave(number, count):
        generator = random.Random(options.seed * 1000 + number)
        for _ in range(count):
            body = json.dumps({'prompt': generator.choice(['a', 'Once upon a time', 'x ' * 40]),
                               'max_tokens': 2000, 'ignore_eos': True,
                               'stream': generator.random() < 0.7,
                               'n': generator.choice([1, 1, 1, 3])}).encode()
            connection = socket.create_connection(('127.0.0.1', server.port),
                                                  timeout=support.PATIENCE)
            connection.sendall(HEAD.format('/v1/completions', len(body)).encode() + body)
            if generator.random() < 0.5:
                connection.settimeout(generator.choice([0.001, 0.01, 0.05]))
                try:
                    if connection.recv(100).startswith(b'HTTP/1.1 429'):
                        with lock:
                            counts['refused'] += 1
                except TimeoutError:
                    pass
            if generator.random() < 0.5:  # close with a reset
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            connection.close()
            with lock:
                counts['left'] += 1

    threads = [threading.Thread(target=leave, args=(i, options.count // options.clients))
               for i in range(options.clients)]
    for thread in threads:
        thread.start()
    rss = []
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.5)
        rss.append(server.rss_mb())
    server.wait_until(lambda h: h['running'] == 0 and h['waiting'] == 0 and h['preparing'] == 0,
                      'all is cancelled')
    # How many tokens are made after a client has left.
    overrun = []
    for _ in range(20):
        connection = Connection(server.port)
        body = json.dumps({'prompt': 'a', 'max_tokens': 2000, 'ignore_eos': True, 'stream': True})
        connection.send((HEAD.format('/v1/completions', len(body)) + body).encode())
        while b'data:' not in connection.socket.recv(65536):
            pass
        made = server.health()['generated_tokens']
        connection.close()
        server.wait_until(lambda h: h['running'] == 0, 'it is cancelled')
        overrun.append(server.health()['generated_tokens'] - made)
    health = server.health()
    half = len(rss) // 2
    if health['used_blocks'] != 0:
        failures.append(f'{health["used_blocks"]} blocks lost')
    return (f'{counts} in {time.monotonic() - start:.0f} s; {health["used_blocks"]} blocks '
            f'used of {health["total_blocks"]}; tokens between asking and the end of a request whose '
            f'client left: median {statistics.median(overrun)}, at most {max(overrun)}; RSS at most '
            f'{max(rss[:half], default=0):.0f} MB in the first half, {max(rss[half:], default=0):.0f} '
            'in the second')


def same_ranks(groups):
    """The probability of such different ranks if the groups do not differ (Kruskal-Wallis test)."""
    values = sorted((value, name) for name, group in groups.items() for value in group)
    total, sums, at = len(values), dict.fromkeys(groups, 0.0), 0
    ties = 0
    while at < total:
        end = at
        while end < total and values[end][0] == values[at][0]:
            end += 1
        for i in range(at, end):
            sums[values[i][1]] += (at + end + 1) / 2
        ties += (end - at) ** 3 - (end - at)
        at = end
    h = 12 / (total * (total + 1)) * sum(sums[name] ** 2 / len(group)
                                         for name, group in groups.items()) - 3 * (total + 1)
    h = max(0, h / max(1e-12, 1 - ties / (total ** 3 - total)))
    # The tail of chi squared, starting from one or two degrees of freedom.
    degrees = 1 if len(groups) % 2 == 0 else 2
    tail = math.erfc(math.sqrt(h / 2)) if degrees == 1 else math.exp(-h / 2)
    while degrees < len(groups) - 1:
        tail += (h / 2) ** (degrees / 2) * math.exp(-h / 2) / math.gamma(degrees / 2 + 1)
        degrees += 2
    return tail


SIGNIFICANT = 1e-3
# Kinds of keys, each with the kind to compare it with, which is as long and wrong in every letter.
COMPARED = {'missing': 'wrong', 'first half': 'wrong', 'all but one': 'wrong',
            'prefix': 'wrong, shorter'}


def time_refusals(server, key, count, seed, failures):
    """Microseconds per refusal, by kind of key."""
    keys = {'wrong': 'x' * len(key), 'first half': key[:16] + 'x' * 16, 'all but one': key[:-1] + 'x',
            'prefix': key[:-1], 'wrong, shorter': 'x' * (len(key) - 1)}
    # Each request has the same number of bytes and fields, so that reading takes the same time.
    fields = {'missing': f'X-Authorizati: Bearer {keys["wrong"]}',
              **{name: f'Authorization: Bearer {sent}' for name, sent in keys.items()}}
    longest = max(map(len, fields.values()))
    requests = {name: (f'GET /v1/models HTTP/1.1\r\nHost: localhost\r\n{field}\r\n'
                       f'X-Pad: {"x" * (1 + longest - len(field))}\r\n\r\n').encode()
                for name, field in fields.items()}
    names = list(requests)
    connection = Connection(server.port)
    micros = {name: [] for name in names}
    generator = random.Random(seed)
    # All are sent from the same memory, for equal caching.
    space = bytearray(len(requests[names[0]]))
    for i in range(count + 200):
        name = generator.choice(names)
        space[:] = requests[name]
        start = time.perf_counter_ns()
        connection.send(space)
        status, _ = connection.receive()
        if i >= 200:  # after the warm-up
            micros[name].append((time.perf_counter_ns() - start) / 1e3)
        if status != 401:
            failures.append(f'{name}: {status}')
    connection.close()
    return micros


def timing(options, server, failures):
    def differing(micros):
        return {name: p for name, p in ((name, same_ranks({
            name: micros[name], control: micros[control]})) for name, control in COMPARED.items())}

    micros = time_refusals(server, options.key, options.count, options.seed, failures)
    for name, values in micros.items():
        error = statistics.stdev(values) / len(values) ** 0.5
        print(f'  {name}: median {statistics.median(values):.2f} us, mean '
              f'{statistics.fmean(values):.2f} +- {error:.2f} us, {len(values)} requests', flush=True)
    found = differing(micros)
    seen = next((shift for shift in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100) if same_ranks({
        'a': [value + shift for value in micros['prefix']],
        'b': micros['wrong, shorter']}) < SIGNIFICANT), None)
    if min(found.values()) < SIGNIFICANT:  # repeat to rule out chance
        again = differing(time_refusals(server, options.key, options.count, options.seed + 1, failures))
        for name in found:
            if max(found[name], again[name]) < SIGNIFICANT and not options.small:
                failures.append(f'the times of "{name}" differ from those of "{COMPARED[name]}": '
                                f'probabilities {found[name]:.2g} and {again[name]:.2g}')
    probabilities = ', '.join(f'{name} {p:.2g}' for name, p in found.items())
    return (f'{options.count} refusals; probabilities of ranks as different, where only chance tells '
            f'keys apart: {probabilities}; {seen} us more would have been seen')


BOMBS = support.ROOT / 'tests' / 'templates' / 'bombs.txt'


def bombs(options, failures):
    def render(template):
        """Returns (exit code, error, seconds)."""
        with tempfile.TemporaryDirectory() as folder:
            names = [f'{folder}/template', f'{folder}/messages']
            for name, text in zip(names, (template, '[{"role": "user", "content": "a"}]')):
                with open(name, 'w') as file:
                    file.write(text)
            start = time.perf_counter()
            done = support.tokamak('render', '--template', names[0], '--messages', names[1],
                                   check=False)
            return done.returncode, done.stderr, time.perf_counter() - start

    times = 1 if options.small else 3
    base = min(render('a')[2] for _ in range(5))  # the time of the process itself
    worst = (0, '')
    lines = BOMBS.read_text().splitlines()[::7 if options.small else 1]
    for bomb in lines:
        runs = [render(bomb) for _ in range(times)]
        worst = max(worst, (min(run[2] for run in runs) - base, bomb))
        if runs[0][0] != 1 or not runs[0][1]:
            failures.append(f'{bomb}: exit code {runs[0][0]}')
    if not options.small and worst[0] > 0.1:
        failures.append(f'{worst[0] * 1e3:.0f} ms: {worst[1]}')
    return (f'{len(lines)} templates, each refused; the slowest took {worst[0] * 1e3:.0f} ms beside '
            f'{base * 1e3:.0f} ms of the process: {worst[1][:100]}')


PARTS = {'malformed': malformed, 'slow': slow, 'fairness': fairness, 'disconnects': disconnects,
         'timing': timing, 'bombs': bombs, 'grammars': grammars, 'images': images}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('part', choices=[*PARTS, 'all'])
    parser.add_argument('--small', action='store_true', help='seconds instead of minutes')
    parser.add_argument('--count', type=int)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=15)
    parser.add_argument('--idle', type=int, default=1000)
    parser.add_argument('--deaf', type=int, default=200)
    parser.add_argument('--clients', type=int, default=8)
    parser.add_argument('--seed', type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    options.key = 'k' * 32
    if options.small:
        options.rounds, options.seconds, options.idle, options.deaf = 1, 2, 200, 40
    sizes = {'malformed': (100000, 2000), 'disconnects': (50000, 400), 'timing': (20000, 1000),
             'slow': (0, 0), 'fairness': (0, 0), 'bombs': (0, 0), 'grammars': (0, 0),
             'images': (5000, 200)}
    given = options.count
    print(f'seed {options.seed}', flush=True)
    failed = False
    for part in PARTS if options.part == 'all' else [options.part]:
        options.count = given or sizes[part][options.small]
        failures = []
        if part in ('bombs', 'images'):
            summary = PARTS[part](options, failures)
        else:
            summary = serve_and_attack(part, options, failures)
        for failure in failures:
            print('FAILED:', failure)
        print('FAIL' if failures else 'PASS', f'{part}: {summary}', flush=True)
        failed = failed or bool(failures)
    sys.exit(1 if failed else 0)


def serve_and_attack(part, options, failures):
    with tempfile.NamedTemporaryFile('w') as keys:
        keys.write(options.key + '\n')
        keys.flush()
        flags = ['--api-key-file', keys.name] if part == 'timing' else []
        if part == 'slow' and options.idle > 1000:  # more than the server accepts unless told to
            for flag in ('--max-connections', '--max-connections-per-client'):
                flags += [flag, str(options.idle + 1000)]
        with support.Server(*flags) as server:
            summary = PARTS[part](options, server, failures)
            if server.terminate() != 0:
                failures.append('the server did not exit with 0')
    return summary


if __name__ == '__main__':
    if not os.path.exists(support.model_path()):
        print('skipped: no model')
        sys.exit(support.SKIPPED)
    main()
