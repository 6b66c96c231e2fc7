#!/usr/bin/env python3
"""A mixed load with random cancellations for a while; then nothing may be left of it.

    tests/e2e/soak.py --seconds 300 [--clients 8] [--seed N] [--device cuda]

Clients ask for streams, choices, logprobs and long prompts, with shared prefixes and priorities, on
a cache that is too small for all of them, and walk away from a third of their requests. At the end
every block is free or cached, nothing runs, and the resident memory was no larger in the second half
of the run than in the first, in which the cache's memory is touched. Exits 0 when all of that holds.
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
            'priority': generator.randrange(3), 'ignore_eos': generator.random() < 0.5,
            'logprobs': generator.choice([None, 0, 5]), 'stop': generator.choice([None, ['the']])}
    if generator.random() < 0.1:
        body['prompt_logprobs'] = 2
    if generator.random() < 0.05:
        body['top_p'] = 7  # refused
    return body


class Client(threading.Thread):
    def __init__(self, server, seed, deadline):
        super().__init__()
        self.server, self.deadline = server, deadline
        self.generator = random.Random(seed)
        self.finished = self.cancelled = self.refused = 0
        self.failure = None

    def run(self):
        try:
            while time.monotonic() < self.deadline:
                self.one()
        except Exception as error:  # shown at the end
            self.failure = error

    def one(self):
        body = json.dumps(make_request(self.generator)).encode()
        leave_after = self.generator.choice([None, None, self.generator.uniform(0, 2)])
        with socket.create_connection(('127.0.0.1', self.server.port),
                                      timeout=support.PATIENCE) as connection:
            connection.sendall(
                b'POST /v1/completions HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: '
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--seconds', type=float, default=300)
    parser.add_argument('--clients', type=int, default=8)
    parser.add_argument('--seed', type=int, default=random.randrange(2**32))
    parser.add_argument('--growth-mb', type=float, default=4, help='what RSS may grow by')
    parser.add_argument('--device', default='auto', help='as of tokamak serve')
    options = parser.parse_args()
    print(f'seed {options.seed}', flush=True)
    # 300 positions for up to 16 sequences: preemption is the rule.
    with support.Server('--num-blocks', '64', '--max-seqs', '16', '--max-context', '512',
                        '--host-cache-memory', '8M', '--device', options.device) as server:
        start = time.monotonic()
        clients = [Client(server, options.seed + i, start + options.seconds)
                   for i in range(options.clients)]
        for client in clients:
            client.start()
        samples = []
        while any(client.is_alive() for client in clients):
            time.sleep(min(1, options.seconds / 20))
            samples.append(server.rss_mb())
        for client in clients:
            client.join()
        server.wait_until(lambda h: h['running'] == 0 and h['waiting'] == 0, 'all is done')
        health = server.health()
        counts = {name: sum(getattr(client, name) for client in clients)
                  for name in ('finished', 'cancelled', 'refused')}
        half = len(samples) // 2 + 1
        early = max(samples[:half])
        late = max(samples[half:], default=early)
        print(f'{counts}, {health["steps"]} steps, {health["generated_tokens"]} tokens, '
              f'{health["preemptions"]} preemptions; RSS {early:.1f} MB, then {late:.1f} MB; '
              f'{health["used_blocks"]} blocks used, {health["cached_blocks"]} cached of '
              f'{health["total_blocks"]}')
        failures = [repr(client.failure) for client in clients if client.failure]
        if health['used_blocks'] != 0:
            failures.append(f'{health["used_blocks"]} blocks lost')
        if options.seconds >= 60 and late > early + options.growth_mb:
            failures.append(f'RSS grew from {early:.1f} to {late:.1f} MB')
        if not counts['finished'] or not counts['cancelled']:
            failures.append('nothing finished, or nothing was cancelled')
        if server.terminate() != 0:
            failures.append('the server did not exit with 0')
    for failure in failures:
        print('FAILED:', failure)
    sys.exit(1 if failures else 0)


if __name__ == '__main__':
    if not __import__('os').path.exists(support.model_path()):
        print('skipped: no model')
        sys.exit(support.SKIPPED)
    main()
