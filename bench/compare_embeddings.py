#!/usr/bin/env python3
"""Embeddings per second of `tokamak serve MODEL` and of transformers on torch, on the same cores or GPU.

  bench/compare_embeddings.py MODEL_FOLDER [--texts 512] [--words 5,20,100] [--threads N] [--runs 5]
                              [--device cuda] [--dtype bfloat16]

Needs a Python with torch and transformers. Each text has `words` random common words. The peer does
what sentence-transformers does: batches of 32 texts, sorted by length and padded, with mean pooling
and normalization. --dtype is the peer's type; ours is the device's own. The two take turns. Prints a JSON
object per number of words, with the median, the least and the greatest rate.
"""

import argparse
import base64
import json
import os
import pathlib
import random
import re
import statistics
import struct
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORDS = ('time year people way day man thing woman life child world school state family student group country '
         'problem hand part place case week company system program question work government number night point '
         'home water room mother area money story fact month lot right study book eye job word business').split()


class Ours:
    name = 'tokamak'

    def __init__(self, model, threads, device):
        binary = os.environ.get('TOKAMAK_BINARY', str(ROOT / 'build' / 'tokamak'))
        self.process = subprocess.Popen([binary, 'serve', model, '--port', '0', '--threads', str(threads),
                                         '--device', device], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r'listening on (http://[^ ]*)', line)
            if found:
                self.url = found.group(1).strip() + '/v1/embeddings'
                return
        sys.exit('the server did not start')

    def embed(self, texts):
        body = json.dumps({'input': texts, 'encoding_format': 'base64'}).encode()
        request = urllib.request.Request(self.url, body, {'Content-Type': 'application/json'})
        data = json.load(urllib.request.urlopen(request))['data']
        return [struct.unpack(f'<{len(raw) // 4}f', raw) for raw in (base64.b64decode(d['embedding']) for d in data)]

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Transformers:
    name = 'transformers'

    def __init__(self, model, threads, device, dtype):
        import torch
        import transformers
        torch.set_num_threads(threads)
        self.torch = torch
        self.device = device
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        self.model = transformers.AutoModel.from_pretrained(model, dtype=dtype).to(device).eval()
        self.versions = {'torch': torch.__version__, 'transformers': transformers.__version__}

    def embed(self, texts):
        torch = self.torch
        vectors = [None] * len(texts)
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        with torch.inference_mode():
            for first in range(0, len(order), 32):
                batch = order[first:first + 32]
                x = self.tokenizer([texts[i] for i in batch], padding=True, truncation=True, max_length=256,
                                   return_tensors='pt').to(self.device)
                hidden = self.model(**x).last_hidden_state
                mask = x['attention_mask'].unsqueeze(-1)
                mean = (hidden * mask).sum(1) / mask.sum(1)
                for i, vector in zip(batch, torch.nn.functional.normalize(mean.float()).tolist()):
                    vectors[i] = vector
        return vectors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('model')
    parser.add_argument('--texts', type=int, default=512)
    parser.add_argument('--words', default='5,20,100')
    parser.add_argument('--threads', type=int, default=os.cpu_count())
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--dtype', default='float32')
    args = parser.parse_args()
    peer = Transformers(args.model, args.threads, args.device, args.dtype)
    ours = Ours(args.model, args.threads, args.device)
    generator = random.Random(1)
    for words in map(int, args.words.split(',')):
        texts = [' '.join(generator.choices(WORDS, k=words)) for _ in range(args.texts)]
        seconds = {ours.name: [], peer.name: []}
        vectors = {}
        for run in range(args.runs + 1):
            for engine in (ours, peer):
                start = time.perf_counter()
                vectors[engine.name] = engine.embed(texts)
                if run > 0:  # run 0 warms up
                    seconds[engine.name].append(time.perf_counter() - start)
        worst = max(abs(a - b) for x, y in zip(*vectors.values()) for a, b in zip(x, y))
        rates = {name: {'per_s': round(args.texts / statistics.median(s), 1),
                        'least': round(args.texts / max(s), 1), 'greatest': round(args.texts / min(s), 1)}
                 for name, s in seconds.items()}
        print(json.dumps({'words': words, 'texts': args.texts, 'threads': args.threads, 'runs': args.runs,
                          'device': args.device, 'dtype': args.dtype, **rates,
                          'ratio': round(rates[ours.name]['per_s'] / rates[peer.name]['per_s'], 2),
                          'worst_difference': worst, 'load': os.getloadavg()[0],
                          'versions': peer.versions}), flush=True)
    ours.stop()


if __name__ == '__main__':
    main()
