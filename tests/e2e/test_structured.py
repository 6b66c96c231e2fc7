#!/usr/bin/env python3
"""Structured output with OpenAI's client and the real model, which is too small to keep to a schema
by itself."""

import concurrent.futures
import json
import re
import tempfile
import typing
import unittest

import support

try:
    import jsonschema_rs
    import openai
    import pydantic
except ImportError:
    openai = None

PROMPT = [{'role': 'user', 'content': 'Invent a person. Answer in JSON.'}]

SCHEMAS = [
    {'type': 'object', 'additionalProperties': False, 'required': ['name', 'age'], 'properties': {
        'name': {'type': 'string', 'maxLength': 12},
        'age': {'type': 'integer', 'minimum': 18, 'maximum': 99},
        'email': {'type': 'string', 'pattern': '^[a-z]{1,8}@[a-z]{1,8}[.]com$'}}},
    {'type': 'array', 'minItems': 2, 'maxItems': 3, 'items': {
        'enum': ['red', 'green', None, 7, {'deep': [True]}]}},
    {'$defs': {'tree': {'type': 'object', 'additionalProperties': False, 'required': ['leaf'],
                        'properties': {'leaf': {'type': 'boolean'}}}},
     'anyOf': [{'$ref': '#/$defs/tree'}, {'const': 'none'}]},
    {'type': 'object', 'additionalProperties': False, 'required': ['day'], 'properties': {
        'day': {'type': 'string', 'format': 'date'}, 'id': {'type': 'string', 'format': 'uuid'}}},
]


@unittest.skipIf(openai is None, 'openai, pydantic or jsonschema_rs is not there')
class Structured(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(support.Server('--max-seqs', '8'))
        cls.client = cls.server.client()
        cls.model = cls.client.models.list().data[0].id

    def chat(self, client=None, **options):
        options = {'model': self.model, 'messages': PROMPT, 'max_tokens': 200, 'temperature': 1,
                   'seed': 1, **options}
        return (client or self.client).chat.completions.create(**options)

    @staticmethod
    def named(schema):
        return {'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': schema}}

    def person(self):
        class Person(pydantic.BaseModel):
            name: str = pydantic.Field(max_length=20)
            age: int = pydantic.Field(ge=0, le=150)
            likes: list[typing.Literal['tea', 'coffee']] = pydantic.Field(max_length=3)
        return Person

    def test_parses_into_classes(self):
        options = dict(model=self.model, messages=PROMPT, max_tokens=200, temperature=0,
                       response_format=self.person())
        whole = self.client.chat.completions.parse(**options).choices[0]
        self.assertEqual(whole.finish_reason, 'stop')
        self.assertIsInstance(whole.message.parsed, options['response_format'])
        with self.client.chat.completions.stream(**options) as stream:
            pieces = [event.delta for event in stream if event.type == 'content.delta']
            final = stream.get_final_completion().choices[0].message
        self.assertGreater(len(pieces), 5)
        self.assertEqual(''.join(pieces), whole.message.content)
        self.assertEqual(final.parsed, whole.message.parsed)

    def test_every_choice_is_valid_under_its_schema(self):
        for schema in SCHEMAS:
            with self.subTest(schema=schema):
                answer = self.chat(n=4, response_format=self.named(schema), logprobs=True)
                for choice in answer.choices:
                    self.assertEqual(choice.finish_reason, 'stop')
                    value = json.loads(choice.message.content)
                    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
                    self.assertTrue(validator.is_valid(value), value)
                    self.assertTrue(choice.logprobs.content)

    def test_any_object(self):
        choice = self.chat(response_format={'type': 'json_object'}, temperature=0).choices[0]
        if choice.finish_reason == 'stop':
            self.assertIsInstance(json.loads(choice.message.content), dict)
        else:
            self.assertEqual(choice.finish_reason, 'length')
            self.assertTrue(choice.message.content.lstrip().startswith('{'))

    def test_fields_of_other_servers(self):
        def complete(**fields):
            answer = self.client.completions.create(
                model=self.model, prompt='A word:', max_tokens=60, seed=3, extra_body=fields)
            self.assertEqual(answer.choices[0].finish_reason, 'stop', fields)
            return answer.choices[0].text
        for name in ('guided_regex', 'regex'):
            self.assertRegex(complete(**{name: '[a-f]{4}-[0-9]{2}'}), '^[a-f]{4}-[0-9]{2}$')
        self.assertRegex(complete(structured_outputs={'regex': '[a-f]{4}'}), '^[a-f]{4}$')
        self.assertIn(complete(guided_choice=['yes', 'no']), ('yes', 'no'))
        grammar = 'root ::= "<" [a-z]+ ">" ("!" | "?")'
        for name in ('grammar', 'guided_grammar', 'ebnf'):
            self.assertRegex(complete(**{name: grammar}), '^<[a-z]+>[!?]$')
        for name in ('json_schema', 'guided_json'):
            self.assertIn(json.loads(complete(**{name: {'enum': [1, 'b']}})), (1, 'b'))

    def test_company_changes_nothing(self):
        def ask(seed):
            schema = SCHEMAS[seed % len(SCHEMAS)]
            return self.chat(seed=seed, response_format=self.named(schema)).choices[0].message.content
        alone = [ask(seed) for seed in range(8)]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            free = [pool.submit(self.chat, max_tokens=60, seed=100 + i) for i in range(8)]
            self.assertEqual(list(pool.map(ask, range(8))), alone)
            self.assertTrue(all(answer.result().choices for answer in free))

    def test_stop_strings_spoil_nothing(self):
        for schema in SCHEMAS:
            choice = self.chat(response_format=self.named(schema), stop=['}', ']', '"']).choices[0]
            self.assertEqual(choice.finish_reason, 'stop')
            self.assertTrue(jsonschema_rs.is_valid(schema, json.loads(choice.message.content)))
        lines = self.client.completions.create(
            model=self.model, prompt='A list:', max_tokens=60, seed=4, stop=['\n\n'],
            extra_body={'grammar': r'root ::= ("- " [a-z]{1,9} "\n"){1,5}'}).choices[0]
        self.assertRegex(lines.text, r'^(- [a-z]+\n)+$')
        self.assertEqual(lines.finish_reason, 'stop')

    def test_a_truncated_answer_says_length(self):
        options = dict(response_format=self.named(SCHEMAS[0]), max_tokens=4)
        self.assertEqual(self.chat(**options).choices[0].finish_reason, 'length')
        with self.assertRaises(openai.LengthFinishReasonError):
            self.client.chat.completions.parse(model=self.model, messages=PROMPT, max_tokens=4,
                                               response_format=self.person())

    def digits(self):
        """The ids of the tokens 0 to 9; the model has no others with digits."""
        _, answer = self.server.request('/tokenize', {
            'text': '0123456789', 'add_special_tokens': False})
        self.assertEqual(len(answer['tokens']), 10)
        return answer['tokens']

    def test_logit_bias_cannot_break_a_form(self):
        """A bias of -100 makes a token unlikely, but it is drawn if nothing else may follow."""
        def answer(bias):
            choice = self.chat(logit_bias=bias, extra_body={'regex': 'n[0-9]{6}'}).choices[0]
            self.assertEqual(choice.finish_reason, 'stop')
            return choice.message.content
        digits = self.digits()
        self.assertRegex(answer({str(token): -100 for token in digits}), '^n[0-9]{6}$')
        self.assertEqual(answer({str(token): -100 for token in digits if token != digits[7]}),
                         'n777777')

    def test_a_request_without_a_token_left_ends_alone(self):
        """The answer must go on with a digit, but each of them is an end token."""
        free = dict(seed=5, max_tokens=60)
        alone = self.chat(**free).choices[0].message.content
        fields = {'regex': 'n[0-9]{6}', 'stop_token_ids': self.digits()}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            other = pool.submit(self.chat, **free)
            with self.assertRaises(openai.BadRequestError) as whole:
                self.chat(extra_body=fields)
            with self.assertRaises(openai.APIError) as streamed:
                list(self.chat(extra_body=fields, stream=True))
            self.assertEqual(other.result().choices[0].message.content, alone)
        for caught in (whole, streamed):
            self.assertEqual(caught.exception.param, 'regex')
            self.assertIn('no token can follow the 1 generated ones', str(caught.exception))

    def test_names_the_place_of_what_is_wrong(self):
        at = 'response_format.json_schema.schema'
        for schema, path in (({'type': 'thing'}, at), ({'properties': {'a': {'type': 'thing'}}}, at),
                             ({'$ref': '#/nowhere'}, at)):
            with self.subTest(schema=schema), self.assertRaises(openai.BadRequestError) as caught:
                self.chat(response_format=self.named(schema))
            self.assertTrue(caught.exception.param.startswith(path), caught.exception.param)
        for fields in ({'guided_regex': '(a'}, {'grammar': 'root ::= ('}, {'guided_json': 'text'}):
            with self.subTest(fields=fields), self.assertRaises(openai.BadRequestError) as caught:
                self.chat(extra_body=fields)
            self.assertTrue(caught.exception.param.startswith(next(iter(fields))),
                            caught.exception.param)
        self.assertEqual(self.server.health()['status'], 'ok')

    def test_forces_tool_calls(self):
        def tool(name, **properties):
            return {'type': 'function', 'function': {'name': name, 'parameters': {
                'type': 'object', 'additionalProperties': False, 'properties': properties,
                'required': list(properties)}}}
        tools = [tool('add', a={'type': 'integer', 'minimum': 0, 'maximum': 99}),
                 tool('paint', colour={'enum': ['red', 'green']})]
        with support.Server('--tool-call-parser', 'hermes') as server:
            client = server.client()
            for choice, names in (('required', {'add', 'paint'}),
                                  ({'type': 'function', 'function': {'name': 'paint'}}, {'paint'})):
                options = dict(tools=tools, tool_choice=choice, parallel_tool_calls=False)
                for seed in range(4):
                    whole = self.chat(client, seed=seed, **options).choices[0]
                    self.assertEqual(whole.finish_reason, 'tool_calls', whole)
                    self.assertFalse(whole.message.content)
                    call, = whole.message.tool_calls
                    self.assertIn(call.function.name, names)
                    schema = next(t['function']['parameters'] for t in tools
                                  if t['function']['name'] == call.function.name)
                    arguments = json.loads(call.function.arguments)
                    self.assertTrue(jsonschema_rs.is_valid(schema, arguments), arguments)
                    streamed = [c for chunk in self.chat(client, seed=seed, stream=True, **options)
                                for piece in chunk.choices for c in piece.delta.tool_calls or []]
                    self.assertEqual(support.joined_calls(streamed),
                                     [(call.function.name, call.function.arguments)])
                    self.assertGreater(len(streamed), 2, 'the arguments come in pieces')
                # The client's own helper joins the pieces of several calls.
                options['parallel_tool_calls'] = True
                with client.chat.completions.stream(
                        model=self.model, messages=PROMPT, max_tokens=200, temperature=1, seed=2,
                        **options) as stream:
                    events = [e for e in stream if e.type == 'tool_calls.function.arguments.delta']
                    final = stream.get_final_completion().choices[0]
                whole = self.chat(client, seed=2, **options).choices[0]
                made = [(c.function.name, c.function.arguments) for c in whole.message.tool_calls]
                self.assertEqual(made, [(c.function.name, c.function.arguments)
                                        for c in final.message.tool_calls])
                for index, (name, arguments) in enumerate(made):
                    pieces = [e.arguments_delta for e in events if e.index == index]
                    self.assertEqual(''.join(pieces), arguments)
                    self.assertTrue(all(e.name == name for e in events if e.index == index))

    def test_drafts_change_no_answer(self):
        tools = [{'type': 'function', 'function': {'name': 'paint_the_wall', 'parameters': {
            'type': 'object', 'additionalProperties': False, 'required': ['colour', 'number_of_coats'],
            'properties': {'colour': {'enum': ['red', 'dark green']},
                           'number_of_coats': {'type': 'integer', 'minimum': 1, 'maximum': 9}}}}}]
        forms = [{'response_format': self.named(schema)} for schema in SCHEMAS] + [
            {'response_format': {'type': 'json_object'}},
            {'extra_body': {'regex': '(the [a-z]{1,7} harbour, ){3}end'}},
            {'tools': tools, 'tool_choice': 'required', 'parallel_tool_calls': True}]
        answers, metrics = [], []
        for flags in (('--speculate', 'off'), ('--speculate', 'ngram')):
            with support.Server('--tool-call-parser', 'hermes', '--max-seqs', '4', *flags) as server:
                client = server.client()

                def ask(number):
                    fields = {'temperature': (0, 0.7, 1, 1.5)[number % 4], 'seed': number,
                              'frequency_penalty': number % 3 / 2, 'logprobs': True,
                              **forms[number // 4]}
                    answer = self.chat(client, max_tokens=70, **fields)
                    choice = answer.choices[0].model_dump()
                    for call in choice['message'].get('tool_calls') or []:
                        del call['id']
                    return choice
                with concurrent.futures.ThreadPoolExecutor(3) as pool:
                    answers.append(list(pool.map(ask, range(4 * len(forms)))))
                metrics.append(server.metrics())
        for off, on in zip(*answers):
            self.assertEqual(on, off)
        self.assertEqual(metrics[0]['tokamak_spec_decode_num_accepted_tokens_total'], 0)
        self.assertGreater(metrics[1]['tokamak_spec_decode_num_accepted_tokens_total'], 50)

    def test_answers_in_its_form_or_calls_a_tool(self):
        class Size(pydantic.BaseModel):
            width: int = pydantic.Field(ge=1, le=99)
            unit: typing.Literal['mm', 'inch']

        class Paint(pydantic.BaseModel):
            colour: typing.Literal['red', 'green']
            coats: int = pydantic.Field(ge=1, le=9)

        def read(choice):
            """What was made: arguments as the tool's class, or an answer as the other one."""
            self.assertEqual(choice.finish_reason, 'tool_calls' if choice.message.tool_calls else 'stop')
            if not choice.message.tool_calls:
                self.assertIsInstance(choice.message.parsed, Size)
                return choice.message.content
            self.assertFalse(choice.message.content)
            call, = choice.message.tool_calls
            self.assertIsInstance(call.function.parsed_arguments, Paint)
            return call.function.name, call.function.arguments

        with support.Server('--tool-call-parser', 'hermes') as server:
            client = server.client()

            def first(letter):  # the request has no choice but to begin with it
                _, answer = server.request('/tokenize', {'text': letter, 'add_special_tokens': False})
                return {str(answer['tokens'][0]): 100}
            for bias, kinds in ((first('<'), {tuple}), (first('{'), {str}), ({}, {tuple, str})):
                for seed in range(4):
                    options = dict(model=self.model, messages=PROMPT, max_tokens=200, temperature=1,
                                   seed=seed, logit_bias=bias, parallel_tool_calls=False,
                                   tools=[openai.pydantic_function_tool(Paint)], response_format=Size)
                    made = read(client.chat.completions.parse(**options).choices[0])
                    self.assertIn(type(made), kinds)
                    with client.chat.completions.stream(**options) as stream:
                        self.assertEqual(read(stream.get_final_completion().choices[0]), made)

    def test_structural_tags(self):
        """Free text with tags: the model begins one because the prompt is full of them."""
        tag = {'type': 'structural_tag', 'triggers': ['<f='], 'structures': [
            {'begin': '<f=add>', 'schema': {'type': 'integer', 'maximum': 999}, 'end': '</f>'},
            {'begin': '<f=say>', 'schema': {'enum': ['yes', 'no']}, 'end': '</f>'}]}
        form = r'<f=add>-?\d+(\.0)?</f>|<f=say>"(yes|no)"</f>'
        found = 0
        for seed in range(6):
            answer = self.client.completions.create(
                model=self.model, prompt='A <f=add>12</f> B <f=say>"no"</f> C <f=',
                max_tokens=60, seed=seed, temperature=1, extra_body={'response_format': tag})
            choice = answer.choices[0]
            tags = re.findall(form, choice.text)
            rest = re.sub(form, '', choice.text)
            if choice.finish_reason == 'length':  # perhaps within a tag
                rest = rest.partition('<f=')[0]
            self.assertNotIn('<f=', rest, choice)
            found += len(tags)
        self.assertGreater(found, 0)

    def test_names_the_place_of_what_is_wrong_in_structural_tags(self):
        nested = {'type': 'object', 'properties': {'a': {'items': {'type': 'thing'}}}}
        older = {'type': 'structural_tag', 'triggers': ['<f='], 'structures': [
            {'begin': '<f=x>', 'schema': {}, 'end': '</f>'}]}
        newer = {'type': 'structural_tag', 'format': {
            'type': 'triggered_tags', 'triggers': ['<f='], 'tags': [
                {'begin': '<f=x>', 'content': {'type': 'json_schema', 'json_schema': {}},
                 'end': '</f>'}]}}
        for tag, place, value, param in (
                (older, 'triggers', [], 'triggers'),
                (older, 'triggers', '<f=', 'triggers'),
                (older, 'triggers', [''], 'triggers[0]'),
                (older, 'triggers', ['<g='], 'structures[0].begin'),
                (older, 'triggers', ['<f=', '<|im_end|>'], 'triggers[1]'),
                (older, 'structures', [], 'structures'),
                (older, 'structures', None, 'structures'),
                (older, 'structures.0', {}, 'structures[0].schema'),
                (older, 'structures.0.begin', '', 'structures[0].begin'),
                (older, 'structures.0.end', None, 'structures[0].end'),
                (older, 'structures.0.more', 1, 'structures[0]'),
                (older, 'structures.0.schema', nested,
                 'structures[0].schema.properties.a.items.type'),
                (older, 'more', 1, ''),
                (newer, 'format.tags.0.content.json_schema', nested,
                 'format.tags[0].content.json_schema.properties.a.items.type'),
                (newer, 'format.tags.0.content.type', 'any_text', 'format.tags[0].content.type'),
                (newer, 'format.triggers', [''], 'format.triggers[0]'),
                (newer, 'format.at_least_one', True, 'format.at_least_one'),
                (newer, 'format.type', 'tag', 'format.type')):
            bad = json.loads(json.dumps(tag))
            *path, last = [int(p) if p.isdigit() else p for p in place.split('.')]
            inner = bad
            for name in path:
                inner = inner[name]
            inner[last] = value
            with self.subTest(bad=bad), self.assertRaises(openai.BadRequestError) as caught:
                self.chat(response_format=bad)
            self.assertEqual(caught.exception.param, f'response_format.{param}'.rstrip('.'))
        self.assertEqual(self.server.health()['status'], 'ok')

    def test_on_the_command_line(self):
        with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
            json.dump(SCHEMAS[0], file)
            file.flush()
            args = ['run', support.model_path(), '-p', 'Invent a person.', '--max-tokens', '200']
            out = support.tokamak(*args, '--json-schema', file.name, '--temperature', '0').stdout
            self.assertTrue(jsonschema_rs.Draft202012Validator(SCHEMAS[0]).is_valid(
                json.loads(re.sub(r'\s*\n\s*', ' ', out))), out)
            failed = support.tokamak(*args, '--json-schema', file.name, '--regex', 'a', check=False)
            self.assertEqual(failed.returncode, 2)
        out = support.tokamak(*args, '--regex', '[a-f]{4}').stdout
        self.assertRegex(out, '^[a-f]{4}\n$')
        self.assertEqual(support.tokamak(*args, '--regex', '(a', check=False).returncode, 2)
        with tempfile.NamedTemporaryFile('w', suffix='.gbnf') as file:
            file.write('root ::= pair ("," pair){2}\npair ::= [a-f]{2} "=" [0-9]{1,3}\n')
            file.flush()
            out = support.tokamak(*args, '--grammar', file.name).stdout
            self.assertRegex(out, '^[a-f]{2}=[0-9]{1,3}(,[a-f]{2}=[0-9]{1,3}){2}\n$')
            file.write('more ::= (')
            file.flush()
            failed = support.tokamak(*args, '--grammar', file.name, check=False)
            self.assertEqual(failed.returncode, 2)
            self.assertIn('grammar, line 3', failed.stderr)


if __name__ == '__main__':
    support.main()
