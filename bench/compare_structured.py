#!/usr/bin/env python3
"""Speed of constrained streams beside free ones, over HTTP, each driven by `tokamak bench serve`.

Usage: compare_structured.py TOKAMAK MODEL.gguf [--llama-server PATH] [--drafts] [--runs N]
                             [--streams N]

Each run starts a new server and measures the kinds of load in turns: free and constrained streams, at
temperature 0.7 and greedily. All streams of a run have the same lengths: the schema's answers are
longer than the tokens that are asked for, and free ones ignore the model's end tokens. Prints medians
with the least and the most: tokens per second, the server's CPU seconds, and constrained / free of
both. Where other programs run too, only the CPU seconds mean something. --drafts: also with
speculative decoding.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

import compare_chats

PERSON = {
    'type': 'object',
    'properties': {
        'name': {'type': 'string', 'maxLength': 30},
        'age': {'type': 'integer', 'minimum': 0, 'maximum': 120},
        'born': {'type': 'string', 'format': 'date'},
        'email': {'type': ['string', 'null'], 'maxLength': 40},
        'score': {'type': 'number'},
        'roles': {'type': 'array', 'items': {'enum': ['admin', 'author', 'reader']}, 'maxItems': 3},
    },
    'required': ['name', 'age', 'born', 'email', 'score', 'roles'],
    'additionalProperties': False,
}
SCHEMA = {'type': 'array', 'items': PERSON, 'minItems': 200}
CONSTRAINED = {'response_format': {'type': 'json_schema',
                                   'json_schema': {'name': 'people', 'schema': SCHEMA}}}


def one_load(args, url, body, seed):
    command = [args.tokamak, 'bench', 'serve', '--url', url, '--requests', args.streams,
               '--concurrency', args.streams, '--input', 24, '--output', args.output,
               '--warmup', 2, '--seed', seed, '--body', json.dumps(body), '--json']
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=600, check=False)
    if done.returncode != 0:
        raise RuntimeError(f'bench serve: {done.stderr.strip().splitlines()[-1]}')
    result = json.loads(done.stdout)
    expected = args.streams * args.output
    if result['output_tokens'] != expected:
        raise RuntimeError(f'{result["output_tokens"]} tokens instead of {expected}')
    return result


def cpu_seconds(pid):
    fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')  # user and system


def one_run(args, command, seed):
    """Returns {(kind, temperature): (tok/s, CPU seconds)} of one server."""
    port = compare_chats.free_port()
    url = f'http://127.0.0.1:{port}'
    with subprocess.Popen([str(word) for word in command] + ['--port', str(port)],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        try:
            compare_chats.wait_until_healthy(process, url)
            rates = {}
            for temperature in (0.7, 0):
                for kind, fields in (('free', {}), ('constrained', CONSTRAINED)):
                    body = {'temperature': temperature, **fields}
                    before = cpu_seconds(process.pid)
                    rate = one_load(args, url, body, seed)['output_tok_s']
                    rates[kind, temperature] = rate, cpu_seconds(process.pid) - before
            return rates
        finally:
            process.kill()


def show(title, values):
    print(f'{title:24} {statistics.median(values):8.3f} ({min(values):.3f} to {max(values):.3f})')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('tokamak')
    parser.add_argument('model')
    parser.add_argument('--llama-server')
    parser.add_argument('--drafts', action='store_true', help='also with --speculate ngram')
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--streams', type=int, default=32)
    parser.add_argument('--output', type=int, default=64, help='tokens of each answer')
    parser.add_argument('--threads', type=int, default=2)
    args = parser.parse_args()
    servers = {'tokamak': [args.tokamak, 'serve', args.model, '--device', 'cpu', '--threads',
                           args.threads, '--no-prefix-cache', '--no-page']}
    if args.drafts:
        servers['tokamak with drafts'] = [*servers['tokamak'], '--speculate', 'ngram']
    if args.llama_server:
        servers['llama-server'] = [
            args.llama_server, '-m', args.model, '-t', args.threads, '-np', args.streams, '-c',
            args.streams * 512, '--no-webui', '--no-cache-prompt']
    values = {name: [] for name in servers}
    for run in range(args.runs):
        for name, command in servers.items():
            values[name].append(one_run(args, command, run))
    for name, runs in values.items():
        for temperature in (0.7, 0):
            print(f'{name}, {args.streams} streams, temperature {temperature}:')
            for i, unit in enumerate(('tok/s', 'CPU s')):
                constrained, free = ([run[kind, temperature][i] for run in runs]
                                     for kind in ('constrained', 'free'))
                show(f'  free, {unit}', free)
                show(f'  constrained, {unit}', constrained)
                show('  constrained / free', [c / f for c, f in zip(constrained, free)])


if __name__ == '__main__':
    main()
