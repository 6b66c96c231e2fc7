#!/usr/bin/env python3
"""Chooses the tasks of compare_speculation.py among the candidates and writes tasks.json.

Usage: choose.py MODEL.gguf TOKAMAK

The rule: a candidate is kept if the greedy answer of the fp32 reference (transformers, the weights of the
GGUF file dequantized; up to 200 tokens) has at least 32 tokens, and at least half of the answer's 4-grams
of tokens occur in the prompt. The kinds (quote, code, json) take turns, each with its next candidate that is
kept in the order of candidates.py, until there are 20. tasks.json says what was dropped. No speed was measured
before. Needs transformers, torch, gguf and tokenizers.
"""
import itertools
import json
import pathlib
import subprocess
import sys

import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / 'tests/golden'))
import candidates  # noqa: E402
import gguf_to_hf  # noqa: E402

COUNT = 20
LEAST_TOKENS = 32
MOST_TOKENS = 200
SYSTEM = 'You are a helpful AI assistant named SmolLM, trained by Hugging Face'


def guess(tokamak, path, prompt):
    ids = ','.join(map(str, prompt))
    done = subprocess.run([tokamak, 'run', path, '--device', 'cpu', '--precise', '--token-ids', ids, '--json',
                           '--temperature', '0', '--max-tokens', str(MOST_TOKENS)],
                          capture_output=True, check=True, text=True)
    return json.loads(done.stdout)['token_ids']


@torch.no_grad()
def answer(model, prompt, guessed, end):
    """The greedy answer of `model`. The guess only makes it come sooner: one pass verifies all of it."""
    best = model(torch.tensor([prompt + guessed])).logits[0, len(prompt) - 1:].argmax(-1).tolist()
    right = next((i for i, token in enumerate(guessed) if token != best[i]), len(guessed))
    tokens = best[:right + 1][:MOST_TOKENS]
    while tokens[-1] != end and len(tokens) < MOST_TOKENS:
        tokens.append(int(model(torch.tensor([prompt + tokens])).logits[0, -1].argmax()))
    return tokens[:-1] if tokens[-1] == end else tokens


def grams(tokens):
    return [tuple(tokens[i:i + 4]) for i in range(len(tokens) - 3)]


def share_in(tokens, prompt):
    """The share of the 4-grams of `tokens` that occur in `prompt`."""
    known = set(grams(prompt))
    return sum(gram in known for gram in grams(tokens)) / max(1, len(grams(tokens)))


def main():
    model = gguf_to_hf.load_model(sys.argv[1])
    tokenizer = gguf_to_hf.load_tokenizer(sys.argv[1])
    end = tokenizer.token_to_id('<|im_end|>')
    kept, dropped = [], []
    for name, instruction, text in candidates.CANDIDATES:
        content = f'{instruction}\n\n{text}'
        prompt = tokenizer.encode(
            f'<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{content}<|im_end|>\n'
            '<|im_start|>assistant\n', add_special_tokens=False).ids
        tokens = answer(model, prompt, guess(sys.argv[2], sys.argv[1], prompt), end)
        share = share_in(tokens, prompt)
        task = {'name': name, 'answer_tokens': len(tokens), 'share_in_prompt': round(share, 3)}
        print(task, repr(tokenizer.decode(tokens))[:100], flush=True)
        if len(tokens) >= LEAST_TOKENS and share >= 0.5:
            kept.append({**task, 'content': content})
        else:
            dropped.append(task)
    kinds = [[task for task in kept if task['name'].startswith(kind)]
             for kind in ('quote', 'code', 'json')]
    turns = [task for turn in itertools.zip_longest(*kinds) for task in turn if task]
    unused = [task['name'] for task in kept if task not in turns[:COUNT]]
    (HERE / 'tasks.json').write_text(json.dumps(
        {'tasks': turns[:COUNT], 'dropped': dropped, 'kept_but_not_used': unused}, indent=1) + '\n')


if __name__ == '__main__':
    main()
