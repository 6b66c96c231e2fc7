#!/usr/bin/env python3
"""Writes chat/harmony.json, for the tests of gpt-oss's format in src/chat:

  answers        texts after "<|start|>assistant", and the messages that OpenAI's library reads from
                 them. The library rendered some from messages; the others are forms that models
                 are known to write. If the library refuses a text, `messages` is null.
  conversations  OpenAI's messages, and how the model's template renders them (after the system
                 message, which has the date). The library reads back the same calls.

Made with openai-harmony 0.0.8, its vocabulary from quicktok-v1 0.4.0 (the library checks its
SHA-256), transformers 5.23.0, Jinja2 3.1.6 and the template of llama-cpp-python 0.3.36. Usage:
make_harmony_goldens.py TEMPLATE.
"""
import base64
import json
import os
import pathlib
import struct
import sys
import tempfile

import quicktok
from transformers.utils import chat_template_utils as reference

HERE = pathlib.Path(__file__).parent / 'chat'


def write_vocabulary(folder):
    """Converts o200k_base from quicktok's format (a count; size, bytes and rank of each) to
    tiktoken's."""
    packed = (pathlib.Path(quicktok.__file__).parent / 'data/o200k.vocab').read_bytes()
    [count], at, ranks = struct.unpack_from('<I', packed), 4, []
    for _ in range(count):
        [size] = struct.unpack_from('<H', packed, at)
        token, at = packed[at + 2:at + 2 + size], at + 2 + size
        ranks.append((struct.unpack_from('<I', packed, at)[0], token))
        at += 4
    lines = [base64.b64encode(token) + b' %d\n' % rank for rank, token in sorted(ranks)]
    pathlib.Path(folder, 'o200k_base.tiktoken').write_bytes(b''.join(lines))


FOLDER = tempfile.TemporaryDirectory()
write_vocabulary(FOLDER.name)
os.environ['TIKTOKEN_ENCODINGS_BASE'] = FOLDER.name
import openai_harmony as vendor  # noqa: E402  (reads the variable)

ENCODING = vendor.load_harmony_encoding(vendor.HarmonyEncodingName.HARMONY_GPT_OSS)
START = '<|start|>assistant'


def message(text, channel=None, to=None, kind=None):
    made = vendor.Message.from_role_and_content(vendor.Role.ASSISTANT, text)
    made = made.with_channel(channel) if channel else made
    made = made.with_recipient(to) if to else made
    return made.with_content_type(kind) if kind else made


def written(*messages):
    """The library's rendering, from after the prompt to a stop token."""
    text = ENCODING.decode([token for one in messages for token in ENCODING.render(one)])
    assert text.startswith(START)
    return text[len(START):]


WRITTEN = [
    [message('2 + 2 = 4.', 'analysis'), message('It is 4.', 'final')],
    [message('Need weather.\n\n', 'analysis'),
     message('{"city": "Köln", "n": [1, {"a": null}]}', 'commentary', 'functions.get_weather',
             '<|constrain|>json')],
    [message('First,', 'analysis'), message('I am going to look.', 'commentary'),
     message('then.', 'analysis'), message('{}', 'commentary', 'functions.ping', 'json')],
    [message('{"a": "<|", "b": "to=x"}', 'analysis', 'functions.f', 'code')],
    [message('{"a": 1}', 'commentary', 'functions.f'),
     message('{"a": 2}', 'commentary', 'functions.g')],
    [message('No channel.')],
    [message('', 'analysis'), message('  spaces \n', 'final')],
    [message('# Überschrift\n\n* `x < y`, <b>, <|x|> and 日本語 😀\n', 'final')],
]
TYPED = [
    ' to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>',
    ' to=functions.f<|channel|>commentary <|constrain|>json<|message|>{"a": 1}<|call|>',
    '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>',
    '<|channel|>commentary to=functions.f<|constrain|>json<|message|>{"a": 1}<|call|>',
    '<|channel|>commentary to=functions.f code<|message|>{"a": 1}<|call|>',
    '<|channel|>analysis to=functions.f code<|message|>{"a": 1}<|call|>',
    '<|channel|>final<|message|>{"a": 1}<|return|>',
    '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes',
    '<|channel|>analysis<|message|>Hm',
    '<|message|>No channel<|end|>',
    '<|channel|><|message|>An empty one<|end|>',
    '<|channel|>final<|message|>A<|end|>B',
]


def read(text, role=vendor.Role.ASSISTANT):
    """The messages in a text, or None if the library refuses it."""
    try:
        parsed = ENCODING.parse_messages_from_completion_tokens(
            ENCODING.encode(text, allowed_special='all'), role, strict=True)
    except vendor.HarmonyError:
        return None
    return [{'channel': one.channel, 'recipient': one.recipient,
             'text': ''.join(part.text for part in one.content)} for one in parsed]


def call(name, arguments):
    return {'id': 'call_1', 'type': 'function', 'function': {'name': name, 'arguments': arguments}}


USER = {'role': 'user', 'content': 'Weather in Köln?'}
CALL = {'role': 'assistant', 'content': None, 'reasoning_content': 'Need the tool.',
        'tool_calls': [call('get_weather', '{"city": "Köln", "days": 2}')]}
RESULT = {'role': 'tool', 'tool_call_id': 'call_1', 'content': '{"sky": "grey"}'}
FINAL = {'role': 'assistant', 'content': 'Grey.', 'reasoning_content': 'It says grey.'}
CONVERSATIONS = [
    [USER],
    [USER, CALL, RESULT],
    [USER, {**CALL, 'reasoning_content': None}, RESULT],
    [USER, CALL, RESULT, FINAL, {'role': 'user', 'content': 'Sure?'}],
    [USER, CALL, RESULT, CALL, RESULT],
    [USER, FINAL, USER, CALL, RESULT],
]


def render(template, messages):
    """Renders messages with transformers after preparing them as its clients do."""
    prepared = []
    for one in messages:
        one = {**one, 'content': one['content'] or ''}
        if one.get('reasoning_content'):
            one['thinking'] = one['reasoning_content']
        one.pop('reasoning_content', None)
        for made in one.get('tool_calls', []):
            function = made['function']
            made = {**made, 'function': {**function,
                                         'arguments': json.loads(function['arguments'])}}
            one['tool_calls'] = [made]
        prepared.append(one)
    [text], _ = reference.render_jinja_template([prepared], chat_template=template,
                                                add_generation_prompt=True)
    return text[text.index('<|start|>user'):]


def main():
    template = pathlib.Path(sys.argv[1]).read_text(encoding='utf-8')
    answers = [{'text': text, 'messages': read(text)}
               for text in [*(written(*messages) for messages in WRITTEN), *TYPED]]
    conversations = []
    for messages in CONVERSATIONS:
        text = render(template, messages)
        got = [(one['recipient'], json.loads(one['text'])) for one in read(text[:-len(START)], None)
               if (one['recipient'] or '').startswith('functions.')]
        given = [(f'functions.{made["function"]["name"]}', json.loads(made['function']['arguments']))
                 for one in messages for made in one.get('tool_calls', [])]
        assert got == given, (got, given)
        conversations.append({'messages': messages, 'text': text})
    golden = {'answers': answers, 'conversations': conversations}
    (HERE / 'harmony.json').write_text(
        json.dumps(golden, ensure_ascii=False, indent=1) + '\n', encoding='utf-8')


main()
