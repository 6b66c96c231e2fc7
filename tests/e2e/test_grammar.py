#!/usr/bin/env python3
"""Random schemas: what a random model writes under one is valid, and what is valid may be written.

TOKAMAK_PROPERTY_EXAMPLES: so many random schemas for each property, instead of the same 150 every
time.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import typing
import unittest

import support

try:
    import hypothesis
    import jsonschema_rs
    from hypothesis import strategies as st
except ImportError:
    print('hypothesis or jsonschema_rs is not there; run scripts/setup-test-refs')
    sys.exit(support.SKIPPED)

PROBE = os.environ.get('TOKAMAK_GRAMMAR_PROBE',
                       str(support.ROOT / 'build' / 'bench' / 'grammar_probe'))

TOKENS = [bytes([b]) for b in range(256)] + [text.encode() for text in (
    'ab', 'é', '\\u00e9', '\\n', '{"', '": ', ', "', 'true', 'null', '12', '日', '"}', ']}')]
NAMES = ['a', 'b', 'c', 'ab', 'z', 'é', '"']  # properties come in this order
ANSWERS = 10  # of the random model for each schema


class Case(typing.NamedTuple):
    schema: typing.Any
    documents: st.SearchStrategy  # most are valid, with members in the schema's order


TEXTS = st.text('ab1é日"\\/\n\x7f😀 -', max_size=6)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-30, 60), TEXTS,
                    st.integers(-99, 99).filter(lambda n: n % 4).map(lambda n: n / 4))
ANYTHING = st.recursive(SCALARS, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
    max_leaves=5)


def subset(draw, options):
    """Some of the members, in their order."""
    return {name: value for name, value in options.items() if draw(st.booleans())}


@st.composite
def numbers(draw):
    kind = draw(st.sampled_from(['integer', 'number']))
    low = draw(st.integers(-20, 20))
    bounds = {draw(st.sampled_from(['minimum', 'exclusiveMinimum'])): low,
              draw(st.sampled_from(['maximum', 'exclusiveMaximum'])): low + draw(st.integers(2, 40))}
    schema = {'type': kind, **subset(draw, bounds)}
    if len(schema) == 1 and draw(st.booleans()):
        schema['multipleOf'] = draw(st.sampled_from([2, 3, 10]))
    whole = st.integers(low - 2, low + 42)
    return Case(schema, whole if kind == 'integer' else st.one_of(
        whole, st.integers(4 * low - 3, 4 * low + 170).filter(lambda n: n % 4).map(lambda n: n / 4)))


@st.composite
def strings(draw):
    schema = {'type': 'string'}
    documents = TEXTS
    kind = draw(st.sampled_from(['lengths', 'pattern', 'both', 'format']))
    if kind in ('lengths', 'both'):
        low = draw(st.integers(0, 3))
        schema |= subset(draw, {'minLength': low, 'maxLength': low + draw(st.integers(0, 3))})
    if kind in ('pattern', 'both'):
        schema['pattern'] = draw(st.sampled_from(
            ['^a+$', 'b', '^[^a]*$', '[0-9]{2,3}$', '^(a|b1)*-?$', r'\d', r'^\S+$', '^.{1,3}$']))
        documents = st.one_of(TEXTS, st.text('ab123-', max_size=6))
    if kind == 'format':
        schema['format'] = draw(st.sampled_from(['date', 'email', 'ipv4', 'ipv6', 'uuid']))
        documents = st.one_of(TEXTS, {
            'date': st.dates().map(str), 'email': st.sampled_from(['a@b.com', 'é@b', 'a.b@c', '@b']),
            'ipv4': st.ip_addresses(v=4).map(str),
            'ipv6': st.ip_addresses(v=6).map(str), 'uuid': st.uuids().map(str)}[schema['format']])
    return Case(schema, documents)


@st.composite
def constants(draw):
    values = draw(st.lists(SCALARS, min_size=1, max_size=4))
    schema = {'const': values[0]} if draw(st.booleans()) else {'enum': values}
    return Case(schema, st.sampled_from(values))


@st.composite
def arrays(draw, inner):
    items = draw(inner)
    first = draw(st.lists(inner, max_size=2))
    low = draw(st.integers(0, 2))
    schema = {'type': 'array', 'items': items.schema,
              **subset(draw, {'minItems': low, 'maxItems': low + draw(st.integers(0, 3))})}
    if first:
        schema['prefixItems'] = [case.schema for case in first]
    documents = st.tuples(*(case.documents for case in first)).flatmap(lambda head: st.lists(
        items.documents, max_size=3).map(lambda tail: [*head, *tail]))
    return Case(schema, documents)


@st.composite
def objects(draw, inner):
    names = [name for name in NAMES if draw(st.booleans())]
    cases = {name: draw(inner) for name in names[:3]}
    others = draw(inner)
    patterned = draw(inner)
    schema = {'type': 'object', 'properties': {name: case.schema for name, case in cases.items()}}
    required = [name for name in names if draw(st.booleans())]
    schema |= subset(draw, {'required': required, 'minProperties': draw(st.integers(0, 2)),
                            'maxProperties': draw(st.integers(2, 4)),
                            'additionalProperties': draw(st.sampled_from([False, others.schema])),
                            'patternProperties': {'^z$': patterned.schema},
                            'propertyNames': {'maxLength': 1}})

    @st.composite
    def documents(draw):
        needed = schema.get('required', [])
        value = {name: draw(case.documents) for name, case in cases.items()
                 if name in needed or draw(st.booleans())}
        more = [name for name in needed if name not in cases]
        more += draw(st.lists(st.sampled_from(NAMES), max_size=2))
        for name in more:
            if name not in cases and name not in value:
                value[name] = draw((patterned if name == 'z' else others).documents)
        return value
    return Case(schema, documents())


@st.composite
def alternatives(draw, inner):
    cases = draw(st.lists(inner, min_size=1, max_size=3))
    return Case({'anyOf': [case.schema for case in cases]},
                st.one_of(*(case.documents for case in cases)))


@st.composite
def conjunctions(draw):
    first, second = draw(st.sampled_from([(numbers(), numbers()), (strings(), strings())]))
    first, second = draw(first), draw(second)
    schema = {'allOf': [first.schema, second.schema]}
    if draw(st.booleans()):
        schema = {**first.schema, 'allOf': [second.schema]}
    return Case(schema, st.one_of(first.documents, second.documents))


@st.composite
def trees(draw, inner):
    leaf = draw(inner)
    tree = {'type': 'object', 'properties': {'a': leaf.schema, 'b': {
        'type': 'array', 'items': {'$ref': '#/$defs/tree'}, 'maxItems': 2}},
        'required': draw(st.sampled_from([['a'], ['b']])), 'additionalProperties': False}
    documents = st.recursive(leaf.documents.map(lambda a: {'a': a, 'b': []}), lambda below: st.tuples(
        leaf.documents, st.lists(below, max_size=2)).map(lambda t: {'a': t[0], 'b': t[1]}), max_leaves=4)
    return Case({'$ref': '#/$defs/tree', '$defs': {'tree': tree}}, documents)


FLAT = st.one_of(numbers(), strings(), constants(), conjunctions())
NESTED = st.recursive(FLAT, lambda inner: st.one_of(
    arrays(inner), objects(inner), alternatives(inner)), max_leaves=6)
CASES = st.one_of(NESTED, trees(FLAT))


class Probe:
    """bench/grammar_probe: one line of JSON in, one out."""

    def __init__(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(struct.pack('=I', len(TOKENS)) + b''.join(
                struct.pack('=I', len(token)) + token for token in TOKENS))
            file.flush()
            self.process = subprocess.Popen([PROBE, file.name], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True, encoding='utf-8')
            self.ask({}, draw=0)  # it has read the file

    def ask(self, schema, **what):
        request = json.dumps({'schema': json.dumps(schema), **what})
        self.process.stdin.write(request + '\n')
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.communicate()
        if self.process.returncode != 0:
            raise AssertionError(f'{PROBE}: exit code {self.process.returncode}')


def is_valid(schema, value):
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True).is_valid(value)


def run(test):
    """Runs a property on cases and a random source of theirs."""
    examples = os.environ.get('TOKAMAK_PROPERTY_EXAMPLES')
    hypothesis.settings(
        max_examples=int(examples or 150), derandomize=not examples, database=None, deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck))(
            hypothesis.given(CASES, st.data())(test))()


class Properties(unittest.TestCase):
    def setUp(self):
        self.probe = Probe()
        self.addCleanup(self.probe.close)
        self.seen = {True: 0, False: 0}
        self.refused = self.schemas = 0

    def ask(self, schema, **what):
        """None if the schema is refused, as few may be."""
        self.schemas += 1
        answer = self.probe.ask(schema, **what)
        if 'error' not in answer:
            return answer
        self.refused += 1
        self.assertTrue(answer['error'])
        return None

    def test_every_answer_is_valid(self):
        def check(case, _):
            answer = self.ask(case.schema, draw=ANSWERS)
            for text in answer['answers'] if answer else []:
                self.seen[True] += 1
                self.assertTrue(is_valid(case.schema, json.loads(text)), (case.schema, text))
        run(check)
        print(f'{self.schemas} schemas, {self.refused} refused, {self.seen[True]} answers')
        self.assertLess(self.refused, self.schemas / 4)
        self.assertGreater(self.seen[True], self.schemas)

    def test_exactly_the_valid_documents_are_accepted(self):
        def check(case, data):
            ordered = data.draw(st.integers(0, 3)) > 0
            value = data.draw(case.documents if ordered else ANYTHING)
            text = json.dumps(value, ensure_ascii=data.draw(st.booleans()),
                              indent=data.draw(st.sampled_from([None, 2])))
            answer = self.ask(case.schema, tokens=list(text.encode()))
            if answer is None:
                return
            accepted = answer['complete'] and answer['taken'] == len(text.encode())
            valid = is_valid(case.schema, value)
            self.seen[valid] += 1
            # Members in another order are valid, but not accepted.
            if valid and ordered:
                self.assertTrue(accepted, (case.schema, text))
            if not valid:
                self.assertFalse(accepted, (case.schema, text))
        run(check)
        print(f'{self.schemas} schemas, {self.refused} refused, documents: {self.seen[True]} valid, '
              f'{self.seen[False]} not')
        self.assertLess(self.refused, self.schemas / 4)
        self.assertGreater(self.seen[True], self.schemas / 10)
        self.assertGreater(self.seen[False], self.schemas / 10)


if __name__ == '__main__':
    support.main(needs_model=False)
