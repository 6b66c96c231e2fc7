#!/usr/bin/env python3
"""Measures what worker processes cost: the time of a decode step of one stream with ranks as
threads and as processes, and how long a group takes to start again after a worker is killed.

    bench/workers.py [MODEL] [--tp 1,2] [--threads 2] [--tokens 200] [--rounds 5] [--json]

Each round starts both servers anew, because steps of one server are up to a fifth slower than those of the
next, by where its threads and memory happen to be. The ways take turns. Run it on a quiet machine.
"""

import argparse
import http.client
import json
import os
import pathlib
import signal
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'tests' / 'e2e'))
import support
from support import Server
from test_workers import children

PROMPT = 'Write a long story about a river and the people who live at it.'


def gaps(server, tokens):
    """The seconds between the tokens of one stream."""
    connection = http.client.HTTPConnection('127.0.0.1', server.port, timeout=support.PATIENCE)
    connection.request('POST', '/v1/completions', json.dumps(
        {'prompt': PROMPT, 'max_tokens': tokens, 'temperature': 0, 'ignore_eos': True,
         'stream': True}), {'Content-Type': 'application/json'})
    times = []
    for line in connection.getresponse():
        if line.startswith(b'data: {'):
            times.append(time.perf_counter())
    return [b - a for a, b in zip(times, times[1:])]


def measure(model, options, rounds, tokens):
    """The gaps of each round, in milliseconds, by the way that ranks run."""
    found = {'threads': [], 'processes': []}
    for round_ in range(rounds):
        for way in sorted(found, reverse=round_ % 2 == 1):
            with Server(*options, '--workers', way, '--speculate', 'off', model=model) as server:
                gaps(server, 10)
                found[way].append([1e3 * gap for gap in gaps(server, tokens)])
    return found


def restart_seconds(model, options):
    with Server(*options, '--workers', 'processes', model=model) as server:
        gaps(server, 3)
        workers = children(server.process.pid)
        begin = time.perf_counter()
        os.kill(workers[-1], signal.SIGKILL)
        server.wait_until(lambda _: not set(workers) & set(children(server.process.pid)), 'new ones')
        gaps(server, 2)
        return time.perf_counter() - begin


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('model', nargs='?', default=support.model_path())
    parser.add_argument('--tp', default='1,2')
    parser.add_argument('--threads', type=int, default=os.cpu_count(),
                        help='of all ranks together; with fewer than cores, driver and client have one')
    parser.add_argument('--tokens', type=int, default=200)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    for ranks in args.tp.split(','):
        if int(ranks) > args.threads:
            continue
        options = ['--tp', ranks, '--threads', str(args.threads)]
        found = measure(args.model, options, args.rounds, args.tokens)
        row = {'tp': int(ranks), 'steps': sum(map(len, found['threads']))}
        for way, rounds in found.items():
            values = [gap for gaps_of_round in rounds for gap in gaps_of_round]
            medians = [round(statistics.median(of_round), 3) for of_round in rounds]
            row[f'{way}_ms'] = {'p50': round(statistics.median(values), 3),
                                'p99': round(percentile(values, 0.99), 3),
                                'mean': round(statistics.mean(values), 3),
                                'p50_of_rounds': {'mean': round(statistics.mean(medians), 3),
                                                  'least': min(medians), 'greatest': max(medians)}}
        row['added_ms'] = {share: round(row['processes_ms'][share] - row['threads_ms'][share], 3)
                           for share in ('p50', 'p99', 'mean')}
        row['restart_s'] = round(restart_seconds(args.model, options), 2)
        if args.json:
            print(json.dumps(row))
            continue
        print(f"tp {row['tp']}: threads {row['threads_ms']}, processes {row['processes_ms']} ms a "
              f"step, added {row['added_ms']}; answers again {row['restart_s']} s after a kill")


if __name__ == '__main__':
    main()
