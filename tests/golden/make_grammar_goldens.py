#!/usr/bin/env python3
"""Writes tests/golden/grammar/schemas.json: documents, and whether Python's jsonschema accepts them.

Usage: make_grammar_goldens.py > tests/golden/grammar/schemas.json

Needs jsonschema 4 with its format checkers. Documents are drawn at random for each schema, most of
them near to what it asks, and written as json.dumps writes them with members in the schema's order.
"""
import importlib.metadata
import json
import random
import re
import sys

import jsonschema

STRINGS = ['', 'a', 'b', 'ab', 'abc', 'aab', 'é', '日本', 'x y', '"', '\\n', 'a\nb', 'A1', '12', 'zz9',
           '2024-02-29', '2023-02-29', '12:30:00Z', '2024-02-29T12:30:00Z', '127.0.0.1', '::1', '1::2::3',
           'a@b.org', 'not an email', '123e4567-e89b-12d3-a456-426614174000', 'https://a.b/c?d#e']
NUMBERS = [0, 1, -1, 2, 3, 5, 7, 9, 10, 12, 99, 100, 101, 305, -12, -13, 1000, 0.5, 0.25, 1.5, -0.5, 2.25,
           9.99, 10.01]
# Members are written in this order, which is also the order of all schemas here.
NAMES = ['a', 'b', 'c', 'ab', 'z', 'zb']

SCHEMAS = [
    {'type': 'integer', 'minimum': -12, 'maximum': 100},
    {'type': 'integer', 'exclusiveMinimum': 3, 'exclusiveMaximum': 101},
    {'type': 'number', 'minimum': 0.5, 'exclusiveMaximum': 10},
    {'type': 'number', 'maximum': -0.5},
    {'type': 'integer', 'multipleOf': 3},
    {'type': 'number', 'multipleOf': 0.1},
    {'type': 'string', 'minLength': 1, 'maxLength': 2},
    {'type': 'string', 'pattern': '^a+b?'},
    {'type': 'string', 'pattern': 'b', 'maxLength': 3},
    {'type': 'string', 'pattern': '^[^a-z]*$'},
    {'type': 'string', 'allOf': [{'pattern': 'a'}, {'pattern': 'b'}]},
    {'type': 'string', 'not': {'enum': ['a', 'é', '"']}},
    {'enum': ['a', 1, None, True, [1, 'x'], {'a': 1}]},
    {'const': 'é"\\'},
    *[{'type': 'string', 'format': f} for f in ('date', 'email', 'ipv4', 'ipv6', 'uuid')],
    {'type': ['string', 'null'], 'maxLength': 1},
    {'type': 'array', 'items': {'type': 'integer'}, 'minItems': 1, 'maxItems': 3},
    {'type': 'array', 'prefixItems': [{'type': 'integer'}, {'type': 'string'}], 'items': False},
    {'type': 'array', 'prefixItems': [{'type': 'integer'}], 'items': {'type': 'string'}, 'minItems': 2},
    {'type': 'object', 'properties': {'a': {'type': 'integer'}, 'b': {'type': 'string'}, 'c': {}},
     'required': ['b'], 'additionalProperties': False},
    {'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'additionalProperties': {'type': 'null'}},
    {'type': 'object', 'properties': {'a': {'type': 'integer'}, 'b': {}, 'c': {}, 'ab': {}},
     'patternProperties': {'^a': {'minimum': 2}, 'b$': {'type': ['integer', 'null']}}},
    {'type': 'object', 'patternProperties': {'^a': {'type': 'integer'}}, 'additionalProperties': False},
    {'type': 'object', 'propertyNames': {'maxLength': 1}, 'required': ['a']},
    {'type': 'object', 'properties': {'a': {}, 'b': {}, 'c': {}}, 'additionalProperties': False,
     'minProperties': 1, 'maxProperties': 2},
    {'type': 'object', 'minProperties': 1},
    {'type': 'object', 'properties': {'a': False, 'b': {'type': 'integer'}}},
    {'type': 'object', 'required': ['ab', 'a'], 'properties': {'a': {'type': 'string'}, 'b': {}, 'c': {}}},
    {'anyOf': [{'type': 'integer', 'minimum': 5}, {'type': 'string', 'maxLength': 1}]},
    {'allOf': [{'anyOf': [{'type': 'integer'}, {'type': 'string'}]}, {'anyOf': [{'minimum': 3}, {'maxLength': 1}]}],
     'not': {'type': 'null'}},
    {'oneOf': [{'type': 'integer'}, {'type': 'string', 'pattern': '^a'}, {'type': 'string', 'pattern': '^[b-z]'}]},
    {'oneOf': [{'type': 'object', 'properties': {'a': {'const': 1}, 'b': {'type': 'integer'}}, 'required': ['a']},
               {'type': 'object', 'properties': {'a': {'const': 2}, 'b': {'type': 'string'}}, 'required': ['a']}]},
    {'$ref': '#/$defs/tree', '$defs': {'tree': {
        'type': 'object', 'properties': {'a': {'type': 'integer'}, 'b': {'type': 'array', 'items': {'$ref': '#/$defs/tree'}}},
        'required': ['a'], 'additionalProperties': False}}},
    {'$ref': '#/$defs/s', 'maxLength': 2, '$defs': {'s': {'type': 'string', 'pattern': 'a'}}},
    {'allOf': [{'$ref': '#/$defs/p'}, {'properties': {'b': {'type': 'string'}}, 'required': ['b']}],
     '$defs': {'p': {'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a']}}},
    {'type': 'object', 'properties': {'a': {'type': 'array', 'items': {'enum': ['a', 'b', 3]}, 'maxItems': 2},
                                      'b': {'type': 'object', 'properties': {'a': {'type': 'boolean'}}, 'required': ['a']}}},
    True,
]


def in_order(names):
    return [name for name in NAMES if name in names]


def any_value(rng, depth=0):
    kind = rng.randrange(5 if depth > 2 else 8)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind in (1, 2):
        return rng.choice(NUMBERS)
    if kind in (3, 4):
        return rng.choice(STRINGS)
    if kind == 5:
        return [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {name: any_value(rng, depth + 1) 
            for name in in_order(rng.sample(NAMES, rng.randrange(4)))}


def near_value(rng, root, schema, depth=0):
    """A value that often fits the schema."""
    if rng.random() < 0.15 or not isinstance(schema, dict) or depth > 6:
        return any_value(rng, depth)
    if '$ref' in schema:
        return near_value(rng, root, root['$defs'][schema['$ref'].split('/')[-1]], depth + 1)
    for name in ('anyOf', 'oneOf', 'allOf'):
        if name in schema and rng.random() < 0.9:
            return near_value(rng, root, rng.choice(schema[name]), depth + 1)
    if 'enum' in schema:
        return rng.choice(schema['enum'])
    if 'const' in schema:
        return schema['const']
    kind = schema.get('type', rng.choice(['string', 'integer', 'object']))
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == 'string':
        return rng.choice(STRINGS)
    if kind in ('integer', 'number'):
        return rng.choice(NUMBERS)
    if kind == 'array':
        prefix = schema.get('prefixItems', [])
        count = rng.randrange(5)
        return [near_value(rng, root, prefix[i] if i < len(prefix) else schema.get('items', True), depth + 1)
                for i in range(count)]
    if kind == 'object':
        properties = schema.get('properties', {})
        names = [name for name in properties if name in schema.get('required', []) or rng.random() < 0.5]
        names += [name for name in schema.get('required', []) if name not in names and rng.random() < 0.8]
        names += rng.sample(NAMES, rng.randrange(3))
        return {name: near_value(rng, root, properties.get(name, True), depth + 1)
                for name in in_order(names)}
    return rng.choice([None, True, False])


def main():
    rng = random.Random(1)
    cases = []
    for schema in SCHEMAS:
        validator = jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        documents = {}
        for _ in range(60):
            value = near_value(rng, schema, schema)
            text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 2]))
            # A whole number written with a fraction is an integer to jsonschema, but not to tokamak.
            if not re.search(r'\d\.0\b', text):
                documents[text] = validator.is_valid(value)
        cases.append({'schema': json.dumps(schema, ensure_ascii=False),
                      'accepted': [text for text, valid in documents.items() if valid],
                      'rejected': [text for text, valid in documents.items() if not valid]})
    json.dump({'jsonschema': importlib.metadata.version('jsonschema'), 'cases': cases}, sys.stdout,
              ensure_ascii=False, indent=1)
    print()


if __name__ == '__main__':
    main()
