#!/usr/bin/env python3
"""Speed and memory of a beam search, of as many samples of the same prompt, and of transformers' beam search.

Usage: compare_beams.py TOKAMAK MODEL.gguf [--beams 4] [--tokens 128] [--runs 5] [--transformers float32,bfloat16]

All make the same number of tokens behind passages of texts/prose.txt, without end tokens, and take turns, passage
by passage; each run has a new server. Prints tokens per second of all beams or samples together without the
prompt's time, medians with the least and the most, and the most KV blocks in use for one request. transformers
gets the file's weights, dequantized; this needs a Python with torch, transformers and gguf.
"""
import argparse
import json
import pathlib
import statistics
import sys
import threading
import time
import urllib.request

import compare_chats

HERE = pathlib.Path(__file__).parent
PASSAGE = 700  # characters
COUNT = 4  # passages
USED = 'tokamak_kv_blocks_used'


def post(url, body):
    request = urllib.request.Request(url + '/v1/completions', json.dumps({**body, 'timings': True}).encode(),
                                     {'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)


def used_blocks(url):
    with urllib.request.urlopen(f'{url}/metrics', timeout=60) as response:
        lines = response.read().decode().splitlines()
    return int(float(next(line for line in lines if line.startswith(USED + ' ')).split()[1]))


def serve(args):
    return compare_chats.serving([args.tokamak, 'serve', args.model, '--device', 'cpu'])


def rate(url, body):
    answer = post(url, body)
    tokens = answer['usage']['completion_tokens']
    if tokens != body['n'] * body['max_tokens']:
        sys.exit(f'an answer has {tokens} tokens')
    return (tokens - body['n']) / answer['timings']['decode_ms'] * 1e3  # the first ones come with the prompt


def most_blocks(url, body):
    most, done = [0], threading.Event()

    def watch():
        while not done.is_set():
            most[0] = max(most[0], used_blocks(url))
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    post(url, body)
    done.set()
    watcher.join()
    return most[0]


class Transformers:
    def __init__(self, path, dtype):
        sys.path.insert(0, str(HERE.parent / 'tests' / 'golden'))
        import gguf_to_hf
        import torch
        self.torch = torch
        self.model = gguf_to_hf.load_model(path).to(getattr(torch, dtype)).eval()
        self.model.set_attn_implementation('sdpa')
        self.tokenizer = gguf_to_hf.load_tokenizer(path)

    def seconds(self, ids, beams, tokens):
        start = time.monotonic()
        result = self.model.generate(
            ids, attention_mask=self.torch.ones_like(ids), num_beams=beams, num_return_sequences=beams,
            max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
        if result.shape != (beams, ids.shape[1] + tokens):
            sys.exit(f'transformers made {result.shape}')
        return time.monotonic() - start

    def rate(self, text, beams, tokens):
        ids = self.torch.tensor([self.tokenizer.encode(text).ids])
        prompt = self.seconds(ids, beams, 1)
        return beams * (tokens - 1) / (self.seconds(ids, beams, tokens) - prompt)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('tokamak')
    parser.add_argument('model')
    parser.add_argument('--beams', type=int, default=4)
    parser.add_argument('--tokens', type=int, default=128)
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--transformers', default='', help='types of its weights')
    args = parser.parse_args()
    text = (HERE / 'texts/prose.txt').read_text()
    passages = [text[i * len(text) // COUNT:][:PASSAGE] for i in range(COUNT)]
    fields = {'max_tokens': args.tokens, 'ignore_eos': True, 'n': args.beams}
    kinds = {'beams': {**fields, 'use_beam_search': True}, 'samples': {**fields, 'temperature': 1, 'seed': 1}}
    peers = {f'transformers, {dtype}': Transformers(args.model, dtype)
             for dtype in filter(None, args.transformers.split(','))}
    rates = {name: [] for name in [*kinds, *peers]}
    for _ in range(args.runs):
        with serve(args) as url:
            for passage in passages:  # prompts into the prefix cache
                post(url, {'prompt': passage, 'max_tokens': 1})
            found = {name: [] for name in rates}
            for passage in passages:
                for name, body in kinds.items():
                    found[name].append(rate(url, {**body, 'prompt': passage}))
        for passage in passages:
            for name, peer in peers.items():
                found[name].append(peer.rate(passage, args.beams, args.tokens))
        for name, values in found.items():
            rates[name].append(statistics.mean(values))
    for name, values in rates.items():
        print(f'{name}: {statistics.median(values):.1f} tokens/s ({min(values):.1f} to {max(values):.1f})')
    for name in rates:
        ratios = [ours / other for ours, other in zip(rates['beams'], rates[name])]
        if name != 'beams':
            print(f'beams ÷ {name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})')
    with serve(args) as url:
        alone = {'prompt': passages[0], **fields, 'n': 1, 'temperature': 0}
        print(f'KV blocks: one answer {most_blocks(url, alone)}', *(
            f'{name} {most_blocks(url, {**body, "prompt": passages[0]})}' for name, body in kinds.items()), sep=', ')


if __name__ == '__main__':
    main()
