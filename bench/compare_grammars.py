#!/usr/bin/env python3
"""Compares tokamak's grammar engine with llguidance: masks, and the time that they take.

Usage: compare_grammars.py GRAMMAR_PROBE VOCABULARY.gguf [--tokens N] [--answers N]

Needs llguidance 1.9.1, check-jsonschema 0.39.0 (whose vendored schemas are the subject) and gguf. For
each schema llguidance draws an answer of at most N tokens from its own masks; both engines follow it as
far as they allow it. White space is one space or none, wherever JSON has tokens. One thread; each
mask is timed alone, the first one with compiling. Last, tokamak alone compiles a schema of 50
properties.
"""
import argparse
import json
import pathlib
import random
import re
import struct
import subprocess
import tempfile
import time

import gguf
import llguidance
import numpy as np

# The subject: the schemas that check-jsonschema 0.39.0 vendors.
SCHEMAS = [
    'azure-pipelines', 'bamboo-spec', 'bitbucket-pipelines', 'buildkite', 'changie', 'circle-ci',
    'citation-file-format', 'cloudbuild', 'codecov', 'compose-spec', 'dependabot', 'drone-ci',
    'github-actions', 'github-discussion', 'github-issue-config', 'github-issue-forms',
    'github-workflows', 'gitlab-ci', 'meltano', 'mergify', 'readthedocs', 'renovate', 'snapcraft',
    'taskfile', 'travis', 'woodpecker-ci']
COMPILED = 25  # times that the schema of 50 properties is compiled
WHITESPACE = '[ ]?'
# RFC 8259 allows these in strings: any \\uXXXX, the escape \\/ and a bare U+007F. llguidance writes
# \\u for controls alone, and neither of the others.
EXPLAINED = re.compile(rb'\\u|\\/|\x7f|\\$')


def byte_alphabet():
    """The byte that each character of a BPE vocabulary stands for."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(other)}


def read_vocabulary(path):
    """Returns the tokens' bytes (special ones empty) and the end token."""
    reader = gguf.GGUFReader(path)
    tokens = reader.fields['tokenizer.ggml.tokens'].contents()
    types = reader.fields['tokenizer.ggml.token_type'].contents()
    eos = reader.fields['tokenizer.ggml.eos_token_id'].contents()
    alphabet = byte_alphabet()
    return [bytes(alphabet[c] for c in token) if kind == 1 else b''
            for token, kind in zip(tokens, types)], int(eos)


class Tokenizer:
    """What llguidance needs to know of a tokenizer."""
    bos_token_id = None

    def __init__(self, tokens, eos):
        self.eos_token_id = eos
        self.special_token_ids = [i for i, token in enumerate(tokens) if not token]
        self.tokens = [token or b'<special%d>' % i for i, token in enumerate(tokens)]
        self.single = {token: i for i, token in enumerate(tokens) if len(token) == 1}

    def __call__(self, text):
        return [self.single[bytes([b])] for b in text]


def draw_answer(tokenizer, eos, schema, length, seed):
    """Returns the tokens, llguidance's masks and its times in microseconds."""
    rng = random.Random(seed)
    start = time.perf_counter()
    # With forcing, a mask has only the token that llguidance would choose where the text is forced.
    grammar = '%llguidance {"no_forcing": true}\nstart: %json ' + json.dumps(
        {**json.loads(schema), 'x-guidance': {'whitespace_pattern': WHITESPACE}})
    matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(grammar))
    if matcher.is_error():
        return matcher.get_error(), [], [], []
    tokens, masks, times = [], [], []
    for _ in range(length):
        mask = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint32).copy()
        times.append((time.perf_counter() - start) * 1e6)
        allowed = tokens_of(mask)
        allowed = allowed[allowed != eos]
        if matcher.is_error() or not len(allowed):
            break
        token = int(rng.choice(allowed))
        masks.append(mask)
        tokens.append(token)
        if not matcher.consume_token(token):
            break
        start = time.perf_counter()
    return '', tokens, masks, times


def follow(probe, token_bytes, requests):
    """Has tokamak follow tokens. Returns its answers, the masks of all of them (uint32 [masks, words])
    and what it printed about the vocabulary."""
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = pathlib.Path(folder) / 'vocabulary'
        vocabulary.write_bytes(struct.pack('=I', len(token_bytes)) + b''.join(
            struct.pack('=I', len(token)) + token for token in token_bytes))
        mask_file = pathlib.Path(folder) / 'masks'
        lines = ''.join(json.dumps(request) + '\n' for request in requests)
        done = subprocess.run([probe, vocabulary, mask_file], check=True, text=True, input=lines,
                              capture_output=True)
        masks = np.fromfile(mask_file, dtype=np.uint32).reshape(-1, (len(token_bytes) + 31) // 32)
    return [json.loads(line) for line in done.stdout.splitlines()], masks, done.stderr.strip()


def tokens_of(mask):
    """The ids in a mask."""
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder='little'))


def wide_schema(count):
    """An object with `count` properties of ordinary kinds, every other one required."""
    kinds = [{'type': 'string'}, {'type': 'string', 'maxLength': 80}, {'type': 'integer'},
             {'type': 'number', 'minimum': 0}, {'type': 'boolean'}, {'type': ['string', 'null']},
             {'enum': ['red', 'green', 'blue']}, {'type': 'string', 'format': 'date-time'},
             {'type': 'array', 'items': {'type': 'integer'}, 'maxItems': 10},
             {'type': 'object', 'properties': {'x': {'type': 'number'}, 'y': {'type': 'number'}},
              'required': ['x', 'y'], 'additionalProperties': False}]
    names = [f'property_{i}' for i in range(count)]
    return {'type': 'object', 'additionalProperties': False, 'required': names[::2],
            'properties': {name: kinds[i % len(kinds)] for i, name in enumerate(names)}}


def show(name, values):
    values = np.array(values)
    print(f'{name:34} median {np.median(values):9.1f}  p99 {np.percentile(values, 99):9.1f}  '
          f'largest {values.max():9.1f}  ({len(values)} values)')


def main():
    import check_jsonschema  # tests, which use the functions above, do without it

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('probe')
    parser.add_argument('vocabulary')
    parser.add_argument('--tokens', type=int, default=100)
    parser.add_argument('--answers', type=int, default=3)
    parser.add_argument('--differences', type=int, default=10, help='how many to print')
    args = parser.parse_args()

    token_bytes, eos = read_vocabulary(args.vocabulary)
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokenizer(token_bytes, eos)))
    vendored = pathlib.Path(check_jsonschema.__file__).parent / 'builtin_schemas/vendor'
    requests, names, theirs, errors = [], [], [], []
    for path in [vendored / f'{name}.json' for name in SCHEMAS]:
        schema = json.dumps(json.loads(path.read_text()))
        for seed in range(args.answers):
            error, tokens, masks, times = draw_answer(tokenizer, eos, schema, args.tokens, seed)
            if error:
                print(f'{path.name}: llguidance refuses: {error.splitlines()[0][:150]}')
                tokens, masks, times = [], [], []
            requests.append({'schema': schema, 'tokens': tokens, 'whitespace': WHITESPACE})
            names.append(path.name)
            theirs.append((tokens, masks, times))
            errors.append(error)
            if error:
                break
    requests += [{'schema': json.dumps(wide_schema(50)), 'tokens': []}] * COMPILED

    answers, ours_masks, log = follow(args.probe, token_bytes, requests)
    print(log)
    print()
    at, shown, equal, fewer, more = 0, 0, 0, 0, 0
    mask_times, first_times = ([], []), ([], [])
    for name, answer, (tokens, masks, times), error in zip(names, answers, theirs, errors):
        if 'error' in answer:
            print(f'{name}: tokamak refuses: {answer["error"][:150]}')
            continue
        count = len(answer['mask_us'])
        if error or not count:
            continue
        first_times[0].append(answer['mask_us'][0])
        first_times[1].append(times[0])
        mask_times[0].extend(answer['mask_us'][1:])
        mask_times[1].extend(times[1:count])
        for i in range(count):
            ours = ours_masks[at + i]
            other = masks[i][:len(ours)]
            ids = [t for t in tokens_of(ours ^ other) if t != eos and t < len(token_bytes)
                   and not EXPLAINED.search(token_bytes[t])]
            if not ids:
                equal += 1
                continue
            extra = [t for t in ids if ours[t // 32] >> (t % 32) & 1]
            more += bool(extra)
            fewer += len(extra) < len(ids)
            if shown < args.differences:
                shown += 1
                text = b''.join(token_bytes[t] for t in tokens[:i])
                print(f'{name} after {text[-60:]!r}: only tokamak '
                      f'{[token_bytes[t] for t in extra[:5]]}, only llguidance '
                      f'{[token_bytes[t] for t in ids if t not in set(extra)][:5]}')
        at += count
    print(f'\nmasks: {equal} equal, {more} where tokamak allows more, {fewer} where it allows less\n')
    wide = answers[-COMPILED:]
    show('tokamak: mask, us', mask_times[0])
    show('llguidance: mask, us', mask_times[1])
    show('tokamak: compile + first mask, us', first_times[0])
    show('llguidance: compile + first mask', first_times[1])
    show('tokamak: compile 50 properties, us', [answer['compile_us'] for answer in wide])


if __name__ == '__main__':
    main()
