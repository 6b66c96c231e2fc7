#!/usr/bin/env python3
"""Speed with and without speculative decoding, over HTTP, and whether the answers are the same.

Usage: compare_speculation.py TOKAMAK MODEL.gguf [--runs N] [--tokens N]

Two servers take turns. The tasks are passages of bench/texts/prose.txt: to copy (a passage twice, the
second time without its end; temperature 0), and to continue (temperature 0.7); by one client at a time
and by eight. Prints tokens per second of all clients together, medians with the least and the most,
and the share of drafts that were accepted.
"""
import argparse
import concurrent.futures
import contextlib
import json
import pathlib
import statistics
import subprocess
import time
import urllib.request

import compare_chats

PROSE = pathlib.Path(__file__).parent / 'texts/prose.txt'
PASSAGE = 700  # characters
COUNT = 8  # passages


def tasks():
    text = PROSE.read_text()
    passages = [text[i * len(text) // COUNT:][:PASSAGE] for i in range(COUNT)]
    return {'copying': [({'prompt': f'{p}\n\nThe same text once more:\n\n{p[:80]}', 'temperature': 0})
                        for p in passages],
            'prose': [{'prompt': p, 'temperature': 0.7, 'seed': 1} for p in passages]}


def post(url, body):
    request = urllib.request.Request(f'{url}/v1/completions', json.dumps(body).encode(),
                                     {'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)


def accepted(url):
    with urllib.request.urlopen(f'{url}/metrics', timeout=60) as response:
        lines = response.read().decode().splitlines()
    values = dict(line.rsplit(' ', 1) for line in lines if line.startswith('tokamak_spec_decode'))
    return [int(values[f'tokamak_spec_decode_num_{name}_tokens_total'])
            for name in ('draft', 'accepted')]


def measure(url, bodies, clients, tokens):
    """Returns tokens per second, without prompts where there is one client, and the texts."""
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda body: post(url, {
            **body, 'max_tokens': tokens, 'ignore_eos': True, 'timings': True}), bodies))
    seconds = time.monotonic() - start
    if clients == 1:
        seconds = sum(answer['timings']['decode_ms'] for answer in answers) / 1e3
    return tokens * len(bodies) / seconds, [answer['choices'][0]['text'] for answer in answers]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('tokamak')
    parser.add_argument('model')
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--tokens', type=int, default=128)
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        urls = {}
        for kind in ('off', 'ngram'):
            port = compare_chats.free_port()
            urls[kind] = f'http://127.0.0.1:{port}'
            process = stack.enter_context(subprocess.Popen(
                [args.tokamak, 'serve', args.model, '--device', 'cpu', '--port', str(port),
                 '--speculate', kind], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            stack.callback(process.kill)
            compare_chats.wait_until_healthy(process, urls[kind])
        for task, bodies in tasks().items():
            for clients in (1, 8):
                rates = {kind: [] for kind in urls}
                texts = {}
                before = accepted(urls['ngram'])
                for _ in range(args.runs):
                    for kind, url in urls.items():
                        rate, texts[kind] = measure(url, bodies, clients, args.tokens)
                        rates[kind].append(rate)
                    if texts['off'] != texts['ngram']:
                        raise RuntimeError(f'{task}: speculation changed an answer')
                drafts, taken = (now - then for now, then in zip(accepted(urls['ngram']), before))
                ratios = [fast / slow for fast, slow in zip(rates['ngram'], rates['off'])]
                print(f'{task}, {clients} at once:', *(
                    f'{kind} {statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})'
                    for kind, values in rates.items()),
                    f'ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}),'
                    f' {taken} of {drafts} drafts accepted', flush=True)


if __name__ == '__main__':
    main()
