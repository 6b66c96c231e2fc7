#!/usr/bin/env python3
"""Runs a mixed load with random cancellations; afterwards nothing of it may be left.

    tests/e2e/soak.py --seconds 300 [--clients 8 | --load 0.9] [--seed N] [--device cuda]

Clients request streams, several choices, logprobs and long prompts, with shared prefixes and
priorities, on a cache that is too small for all, and abandon a third of their requests. Some make
one request after another. With --load, requests arrive at random instead, at that fraction of the
rate that the clients reached in the first tenth of the time. At the end every block must be free or
cached, and nothing may run. The resident memory may not have grown in the second half of the run;
in the first half the cache's memory is touched. Exits with 0 if all of that holds.
"""

import argparse
import json
import random
import socket
import sys
import threading
import time

import support

WORDS = 'time year people way day man thing woman life child world school state family'.split()


def make_request(generator):
    shared = ' '.join(WORDS[:generator.randrange(len(WORDS))]) * generator.randrange(1, 20)
    prompt = shared + ''.join(generator.choice('abc \n') for _ in range(generator.randrange(1, 60)))
    body = {'prompt': prompt, 'max_tokens': generator.randrange(1, 60),
            'n': generator.choice([1, 1, 1, 2, 4]), 'stream': generator.random() < 0.7,
            'temperature': generator.choice([0, 0.7, 1.5]), 'seed': generator.randrange(100),
            'priority': -generator.randrange(3), 'ignore_eos': generator.random() < 0.5,
            'logprobs': generator.choice([None, 0, 5]), 'stop': generator.choice([None, ['the']])}
    if generator.random() < 0.1:
        body['prompt_logprobs'] = 2
    if generator.random() < 0.05:
        body['top_p'] = 7  # is refused
    return body


class Client(threading.Thread):
    """Makes one request after another until a deadline, or a single one if there is none."""

    def __init__(self, server, seed, deadline=None):
        super().__init__()
        self.server, self.deadline = server, deadline
        self.generator = random.Random(seed)
        self.finished = self.cancelled = self.refused = 0
        self.failure = None

    def run(self):
        try:
            self.one()
            while self.deadline is not None and time.monotonic() < self.deadline:
                self.one()
        except Exception as error:  # reported at the end
            self.failure = error

    def one(self):
        body = json.dumps(make_request(self.generator)).encode()
        leave_after = self.generator.choice([None, None, self.generator.uniform(0, 2)])
        with socket.create_connection(('127.0.0.1', self.server.port),
                                      timeout=support.PATIENCE) as connection:
            connection.sendall(
                b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: '
                b'%d\r\nContent-Type: application/json\r\n\r\n%s' % (len(body), body))
            answer = b''
            end = None if leave_after is None else time.monotonic() + leave_after
            while True:
                if end is not None:
                    left = end - time.monotonic()
                    if left <= 0:
                        self.cancelled += 1
                        return
                    connection.settimeout(left)
                try:
                    data = connection.recv(65536)
                except TimeoutError:
                    if end is None:
                        raise
                    continue
                if not data:
                    break
                answer += data
        status = int(answer.split(b' ', 2)[1])
        if status == 200:
            whole = b'[DONE]' in answer or answer.rstrip().endswith(b'}')
            assert whole, answer[-200:]
            self.finished += 1
        else:
            assert status == 400, answer
            self.refused += 1


class Clients:
    """All clients; keeps only counts of those that have ended."""

    def __init__(self):
        self.running = []
        self.counts = {'finished': 0, 'cancelled': 0, 'refused': 0}
        self.failures = []
        self.most = 0  # concurrent clients

    def start(self, client):
        client.start()
        self.running.append(client)
        self.most = max(self.most, len(self.running))

    def collect(self, wait=False):
        """Counts the clients that have ended; with `wait`, waits for all of them."""
        for client in self.running:
            if wait:
                client.join()
        for client in [c for c in self.running if not c.is_alive()]:
            self.running.remove(client)
            for name in self.counts:
                self.counts[name] += getattr(client, name)
            if client.failure:
                self.failures.append(repr(client.failure))


class Sampler(threading.Thread):
    """Samples the server's resident memory."""

    def __init__(self, server, every):
        super().__init__(daemon=True)
        self.server, self.every = server, every
        self.samples, self.stopped = [], threading.Event()

    def run(self):
        while not self.stopped.wait(self.every):
            self.samples.append(self.server.rss_mb())


def closed_loop(server, clients, seed, number, seconds):
    deadline = time.monotonic() + seconds
    for i in range(number):
        clients.start(Client(server, seed + i, deadline))
    clients.collect(wait=True)


def open_loop(server, clients, seed, rate, seconds):
    generator = random.Random(seed)
    due = start = time.monotonic()
    number = 0
    while due < start + seconds:
        time.sleep(max(0, due - time.monotonic()))
        clients.start(Client(server, seed + 1000 + number))
        clients.collect()
        number += 1
        due += generator.expovariate(rate)
    clients.collect(wait=True)
    return number / seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--seconds', type=float, default=300)
    parser.add_argument('--clients', type=int, default=8)
    parser.add_argument('--load', type=float, help='share of what the clients reach, such as 0.9')
    parser.add_argument('--seed', type=int, default=random.randrange(2**32))
    parser.add_argument('--growth-mb', type=float, default=4, help='what RSS may grow by')
    parser.add_argument('--device', default='auto', help='as of tokamak serve')
    options = parser.parse_args()
    print(f'seed {options.seed}', flush=True)
    # 300 positions for up to 16 sequences, so preemption is frequent.
    with support.Server('--num-blocks', '64', '--max-seqs', '16', '--max-context', '512',
                        '--host-cache-memory', '8M', '--device', options.device) as server:
        clients = Clients()
        sampler = Sampler(server, min(1, options.seconds / 20))
        sampler.start()
        how = f'{options.clients} clients'
        if options.load is None:
            closed_loop(server, clients, options.seed, options.clients, options.seconds)
        else:
            first = options.seconds / 10
            start = time.monotonic()
            closed_loop(server, clients, options.seed, options.clients, first)
            capacity = sum(clients.counts.values()) / (time.monotonic() - start)
            reached = open_loop(server, clients, options.seed, options.load * capacity,
                                options.seconds - first)
            how = (f'{reached:.1f} requests/s of {capacity:.1f} that {options.clients} clients reach, '
                   f'at most {clients.most} at a time')
        sampler.stopped.set()
        sampler.join()
        server.wait_until(lambda h: h['running'] == 0 and h['waiting'] == 0, 'all is done')
        health = server.health()
        half = len(sampler.samples) // 2 + 1
        early = max(sampler.samples[:half])
        late = max(sampler.samples[half:], default=early)
        summary = (f'{options.seconds:.0f} s, {how}; {clients.counts}, {health["steps"]} steps, '
                   f'{health["generated_tokens"]} tokens, {health["preemptions"]} preemptions; RSS '
                   f'{early:.1f} MB, then {late:.1f} MB; {health["used_blocks"]} blocks used, '
                   f'{health["cached_blocks"]} cached of {health["total_blocks"]}')
        failures = clients.failures[:20]
        if health['used_blocks'] != 0:
            failures.append(f'{health["used_blocks"]} blocks lost')
        if options.seconds >= 60 and late > early + options.growth_mb:
            failures.append(f'RSS grew from {early:.1f} to {late:.1f} MB')
        if not clients.counts['finished'] or not clients.counts['cancelled']:
            failures.append('nothing finished, or nothing was cancelled')
        if server.terminate() != 0:
            failures.append('the server did not exit with 0')
    for failure in failures:
        print('FAILED:', failure)
    print('FAIL' if failures else 'PASS', 'soak:', summary)
    sys.exit(1 if failures else 0)


if __name__ == '__main__':
    if not __import__('os').path.exists(support.model_path()):
        print('skipped: no model')
        sys.exit(support.SKIPPED)
    main()
