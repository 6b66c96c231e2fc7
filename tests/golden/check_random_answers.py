#!/usr/bin/env python3
"""Checks answers that a random model writes under schemas: Python's jsonschema must accept each.

Usage: check_random_answers.py GRAMMAR_PROBE [--schemas N] [--answers N] [--seed N]

The schemas are those of make_grammar_goldens.py and N random ones. Needs jsonschema 4.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import jsonschema

import make_grammar_goldens as goldens

TOKENS = [bytes([b]) for b in range(256)] + [text.encode() for text in (
    'ab', 'é', '\\u00e9', '\\n', '{"', '": ', ', "', 'true', 'null', '12', '日', '"}', ']}')]


def random_schema(rng, depth=0):
    kind = rng.randrange(7 if depth < 3 else 4)
    if kind == 0:
        low = rng.randrange(-20, 20)
        return {'type': rng.choice(['integer', 'number']),
                **rng.choice([{'minimum': low}, {'exclusiveMinimum': low + 0.5}]),
                **rng.choice([{}, {'maximum': low + rng.randrange(1, 40)}])}
    if kind == 1:
        return {'type': 'string',
                **rng.choice([{}, {'minLength': 2, 'maxLength': 5}]),
                **rng.choice([{}, *({'pattern': p} for p in ('^a+$', 'b', '^[^a]*$', '[0-9]{2,3}$'))])}
    if kind == 2:
        return {'enum': rng.sample(['a', 'b', 1, 2, None, True, 'é', 2.5], 3)}
    if kind == 3:
        return rng.choice([{'type': 'boolean'}, {'type': ['string', 'integer']}, *(
            {'type': 'string', 'format': f} for f in ('date', 'ipv4', 'ipv6', 'email', 'uuid'))])
    if kind == 4:
        return {'type': 'array', 'items': random_schema(rng, depth + 1),
                'minItems': rng.randrange(3), 'maxItems': rng.randrange(3, 5)}
    if kind == 6:
        return {rng.choice(['anyOf', 'allOf']): [random_schema(rng, depth + 1) for _ in range(2)]}
    names = rng.sample(goldens.NAMES, rng.randrange(4))
    schema = {'type': 'object', 'properties': {name: random_schema(rng, depth + 1) for name in names},
              'required': [name for name in names + ['y'] if rng.random() < 0.4]}
    for keyword, value in {'additionalProperties': rng.choice([False, random_schema(rng, depth + 1)]),
                           'patternProperties': {'^a': random_schema(rng, depth + 1)},
                           'minProperties': 1, 'maxProperties': 2,
                           'propertyNames': {'maxLength': 2}}.items():
        if rng.random() < 0.3:
            schema[keyword] = value
    return schema


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('probe')
    parser.add_argument('--schemas', type=int, default=300)
    parser.add_argument('--answers', type=int, default=100, help='for each schema')
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    # jsonschema divides doubles, so that it takes 0.3 for no multiple of 0.1.
    schemas = [s for s in goldens.SCHEMAS if s is True or s.get('multipleOf') != 0.1]
    schemas += [random_schema(rng) for _ in range(args.schemas)]
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = pathlib.Path(folder) / 'vocabulary'
        vocabulary.write_bytes(struct.pack('=I', len(TOKENS)) + b''.join(
            struct.pack('=I', len(token)) + token for token in TOKENS))
        requests = [json.dumps({'schema': json.dumps(s), 'draw': args.answers}) for s in schemas]
        output = subprocess.run([args.probe, vocabulary], check=True, text=True, capture_output=True,
                                input='\n'.join(requests) + '\n').stdout
    answers, refused, wrong = 0, 0, 0
    for schema, line in zip(schemas, output.rstrip('\n').split('\n'), strict=True):
        result = json.loads(line)
        refused += 'error' in result
        validator = jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for text in result.get('answers', []):
            answers += 1
            if not validator.is_valid(json.loads(text)):
                wrong += 1
                print(f'wrong: {json.dumps(schema)}\n  {text}')
    print(f'{answers} answers, {wrong} wrong; {refused} of {len(schemas)} schemas refused')
    return wrong > 0 or answers == 0


if __name__ == '__main__':
    sys.exit(main())
