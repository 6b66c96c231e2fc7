#!/usr/bin/env python3
"""Compares tokamak's masks with xgrammar's, token by token.

Usage: compare_xgrammar.py GRAMMAR_PROBE VOCABULARY.gguf [--tokens N] [--answers N]

Needs xgrammar 0.2.8 (with torch) and what compare_grammars.py needs. The subject: the ordinary schemas
of mask_schemas.py. For each, xgrammar draws answers of at most N tokens from its own masks, and
tokamak follows them as far as it allows them. There is no white space outside strings. Prints for each
schema how many masks are equal, and for the others how many tokens only one engine allows, with the
first ones.
"""
import argparse
import collections
import json
import pathlib
import random
import sys

import numpy as np
import xgrammar

import compare_grammars

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / 'tests/golden'))
import mask_schemas  # noqa: E402


def draw_answer(compiled, vocabulary_size, eos, length, seed):
    """Returns the tokens, and the mask before each."""
    rng = random.Random(seed)
    matcher = xgrammar.GrammarMatcher(compiled)
    tokens, masks = [], []
    for _ in range(length):
        mask = xgrammar.allocate_token_bitmask(1, vocabulary_size)
        matcher.fill_next_token_bitmask(mask)
        mask = mask.numpy().view(np.uint32)[0].copy()
        allowed = compare_grammars.tokens_of(mask)
        allowed = allowed[allowed != eos]
        if not len(allowed):
            break
        tokens.append(int(rng.choice(allowed)))
        masks.append(mask)
        if not matcher.accept_token(tokens[-1]):
            raise RuntimeError('xgrammar refuses a token of its own mask')
    return tokens, masks


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('probe')
    parser.add_argument('vocabulary')
    parser.add_argument('--tokens', type=int, default=60)
    parser.add_argument('--answers', type=int, default=5)
    args = parser.parse_args()

    token_bytes, eos = compare_grammars.read_vocabulary(args.vocabulary)
    info = xgrammar.TokenizerInfo(
        [token or b'<special%d>' % i for i, token in enumerate(token_bytes)],
        vocab_type=xgrammar.VocabType.RAW, vocab_size=len(token_bytes), stop_token_ids=[eos])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1)
    special = {i for i, token in enumerate(token_bytes) if not token}
    requests, drawn = [], []
    for schema in mask_schemas.SCHEMAS:
        compiled = compiler.compile_json_schema(json.dumps(schema), any_whitespace=False,
                                                separators=(',', ':'), strict_mode=False)
        for seed in range(args.answers):
            tokens, masks = draw_answer(compiled, len(token_bytes), eos, args.tokens, seed)
            requests.append({'schema': json.dumps(schema), 'tokens': tokens, 'whitespace': ''})
            drawn.append((schema, tokens, masks))

    answers, ours_masks, _ = compare_grammars.follow(args.probe, token_bytes, requests)

    at = 0
    report = collections.defaultdict(lambda: collections.Counter())
    examples = collections.defaultdict(dict)
    for answer, (schema, tokens, masks) in zip(answers, drawn):
        name = json.dumps(schema)
        if 'error' in answer:
            examples[name]['refused'] = answer['error'][:100]
            continue
        count = len(answer['mask_us'])
        for i in range(count):
            ours, theirs = (set(compare_grammars.tokens_of(mask).tolist())
                            for mask in (ours_masks[at + i], masks[i]))
            text = b''.join(token_bytes[t] for t in tokens[:i])
            kinds = {'only xgrammar': theirs - ours - special - {eos},
                     'only tokamak': ours - theirs - special - {eos}}
            report[name]['equal'] += not any(kinds.values())
            for kind, ids in kinds.items():
                report[name][kind] += bool(ids)
                if ids and len(examples[name].setdefault(kind, [])) < 1:
                    examples[name][kind].append(
                        f'after {text[-30:]!r}: {len(ids)} tokens, among them '
                        f'{[token_bytes[t] for t in sorted(ids)[:4]]}')
        at += count
    for schema in mask_schemas.SCHEMAS:
        name = json.dumps(schema)
        print(f'{name[:110]}\n  ' + ', '.join(f'{k}: {v}' for k, v in report[name].items()))
        for kind, texts in examples[name].items():
            for text in [texts] if isinstance(texts, str) else texts:
                print(f'  {kind} {text}')
    total = sum(report.values(), collections.Counter())
    print('masks: ' + ', '.join(f'{k}: {v}' for k, v in total.items()))


if __name__ == '__main__':
    main()
