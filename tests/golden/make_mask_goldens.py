#!/usr/bin/env python3
"""Writes tests/golden/grammar/masks.json: masks of llguidance over a real vocabulary.

Usage: make_mask_goldens.py VOCABULARY.gguf > tests/golden/grammar/masks.json

Needs llguidance 1.9.1, check-jsonschema and gguf, as bench/compare_grammars.py does, which prints the
tokens where the two engines differ. VOCABULARY is ggml-vocab-qwen2.gguf of llama.cpp. For each schema
llguidance draws answers from its own masks. A mask is written as the number of allowed tokens and
FNV-1a (32 bits) of the bits, or as the reason why tokamak's is another one (see `difference`). These
tokens are cleared first:
 - the end token, which tokamak's engine adds where an answer is complete;
 - padding ("[PAD151646]"), whose tokens are text to tokamak and nothing to llguidance;
 - tokens that hold or begin an escape "\\u" or "\\/", or hold U+007F: RFC 8259 allows all of these, and
   llguidance only "\\u" of controls.
"""
import importlib.metadata
import json
import pathlib
import re
import sys

import llguidance
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / 'bench'))
import compare_grammars  # noqa: E402

ANSWERS = 2  # of each schema
TOKENS = 40  # of each answer, at most

PERSON = {'type': 'object', 'properties': {'name': {'type': 'string'}, 'age': {'type': 'integer'}},
          'required': ['name', 'age'], 'additionalProperties': False}
TREE = {'$ref': '#/$defs/node', '$defs': {'node': {
    'type': 'object', 'properties': {'value': {'type': 'boolean'},
                                     'children': {'type': 'array', 'items': {'$ref': '#/$defs/node'}}},
    'required': ['value'], 'additionalProperties': False}}}
SCHEMAS = [
    PERSON,
    TREE,
    {'type': 'object'},
    {'type': 'object', 'properties': {'a': {'type': 'integer'}, 'b': {'type': 'string'}, 'c': {}},
     'required': ['b'], 'additionalProperties': False},
    {'type': 'object', 'properties': {'x': {'type': 'number'}},
     'additionalProperties': {'type': 'boolean'}},
    {'type': 'array', 'items': {'type': 'integer'}, 'minItems': 2, 'maxItems': 5},
    {'type': 'array', 'items': PERSON},
    {'type': 'array', 'prefixItems': [{'type': 'integer'}, {'type': 'string'}], 'items': False,
     'minItems': 2},
    {'type': 'integer'},
    {'type': 'integer', 'minimum': -12, 'maximum': 1000},
    {'type': 'integer', 'exclusiveMinimum': 99},
    {'type': 'string'},
    {'type': 'string', 'minLength': 3, 'maxLength': 12},
    {'type': 'string', 'pattern': '^[a-z]{2,10}(-[0-9]+)*$'},
    {'type': 'string', 'pattern': '^(red|green|blue)( light)?$'},
    {'type': 'string', 'format': 'date'},
    {'type': 'string', 'format': 'uuid'},
    {'type': 'string', 'format': 'ipv4'},
    {'enum': ['one', 'two', 'twenty', 3, None, True]},
    {'const': {'a': [1, 'x', None]}},
    {'anyOf': [{'type': 'boolean'}, {'type': 'null'}, {'type': 'string', 'maxLength': 4}]},
    {'anyOf': [PERSON, {'type': 'object', 'properties': {'error': {'type': 'string'}},
                        'required': ['error'], 'additionalProperties': False}]},
    {'allOf': [{'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a']},
               {'type': 'object', 'properties': {'b': {'type': 'string'}}, 'required': ['b']}],
     'additionalProperties': False, 'properties': {'a': {}, 'b': {}}},
    {'type': ['integer', 'null', 'boolean']},
]


def difference(schema, text):
    """Why tokamak allows more after `text`; None if it does not."""
    if (len(text) - len(text.rstrip(b'\\'))) % 2 == 1:
        return 'any character may be an escape \\uXXXX, and "/" may be \\/'
    if 'const' in schema and re.search(rb'\[ ?1$', text):
        return 'a whole number in a constant may be written with .0'
    return None


def fnv32(data):
    value = 0x811c9dc5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xffffffff
    return value


def main():
    token_bytes, eos = compare_grammars.read_vocabulary(sys.argv[1])
    tokenizer = llguidance.LLTokenizer(
        llguidance.TokenizerWrapper(compare_grammars.Tokenizer(token_bytes, eos)))
    keep = np.array([t != eos and not compare_grammars.EXPLAINED.search(token)
                     for t, token in enumerate(token_bytes)])
    known = {}  # masks recur, and hashing takes time
    answers = []
    for schema in SCHEMAS:
        for seed in range(ANSWERS):
            text = json.dumps(schema)
            error, tokens, masks, _ = compare_grammars.draw_answer(tokenizer, eos, text, TOKENS, seed)
            assert not error, (text, error)
            hashes = []
            for i, mask in enumerate(masks):
                reason = difference(schema, b''.join(token_bytes[t] for t in tokens[:i]))
                if reason:
                    hashes.append(reason)
                    continue
                bits = np.unpackbits(mask.view(np.uint8), bitorder='little')[:len(keep)] & keep
                data = np.packbits(bits, bitorder='little').tobytes()
                if data not in known:
                    known[data] = [int(bits.sum()), fnv32(data)]
                hashes.append(known[data])
            answers.append({'schema': text, 'tokens': tokens, 'masks': hashes})
    versions = {name: importlib.metadata.version(name) for name in ('llguidance', 'gguf')}
    lines = ',\n'.join(json.dumps(answer, separators=(',', ':')) for answer in answers)
    header = json.dumps({**versions, 'vocabulary': pathlib.Path(sys.argv[1]).name,
                         'whitespace': compare_grammars.WHITESPACE})
    print(f'{header[:-1]}, "answers": [\n{lines}\n]}}')


if __name__ == '__main__':
    main()
