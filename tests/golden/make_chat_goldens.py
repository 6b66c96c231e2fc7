#!/usr/bin/env python3
"""Writes what transformers renders, for the tests of src/chat:

  chat/cases.json      conversations
  chat/rendered.txt    for each chat template a CRC-32 per conversation, with and without prompt
  chat/language.json   small templates and their texts, for the template language

Made with transformers 5.23.0, Jinja2 3.1.6, Python 3.11 and the templates of llama-cpp-python
0.3.36. Usage: make_chat_goldens.py TEMPLATES_DIRECTORY. With --compare BINARY it writes nothing and
shows where `tokamak render` differs.
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
import zlib

from jinja2.exceptions import TemplateError
from transformers.utils import chat_template_utils as reference

import chat_cases

HERE = pathlib.Path(__file__).parent / 'chat'
TOKENS = {'bos_token': '<s>', 'eos_token': '</s>'}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 4, 5, 6, 7)


def render(source, case, prompt):
    """Returns (text, None), or (None, the error that the template raised), or (None, None)."""
    try:
        [text], _ = reference.render_jinja_template(
            [case['messages']], tools=case.get('tools'), chat_template=source,
            add_generation_prompt=prompt, **TOKENS, **case.get('variables', {}))
        text.encode()
        return text, None
    except TemplateError as error:
        return None, str(error) if type(error) is TemplateError else None
    except Exception:
        return None, None


def crc(text):
    return f'{zlib.crc32(text.encode()):08x}'


def mark(text, message):
    """The CRC of the text; or '!', and the CRC of the message if the template itself raised an
    error."""
    if text is not None:
        return crc(text)
    return '!' + (crc(message) if message is not None else '')


def language_result(source):
    text, message = render(source, {'messages': [], 'variables': chat_cases.VARIABLES}, False)
    return {'template': source, 'text': text} if text is not None else {'template': source}


def write(templates):
    HERE.mkdir(exist_ok=True)
    (HERE / 'cases.json').write_text(
        json.dumps(chat_cases.CASES, ensure_ascii=False, indent=1) + '\n')
    with open(HERE / 'rendered.txt', 'w') as out:
        for path in templates:
            source = path.read_text()
            marks = [mark(*render(source, case, prompt))
                     for case in chat_cases.CASES for prompt in (True, False)]
            print(path.name, *marks, file=out)
    (HERE / 'language.json').write_text(json.dumps(
        {'variables': chat_cases.VARIABLES,
         'templates': [language_result(source) for source in chat_cases.LANGUAGE]},
        ensure_ascii=False, indent=1) + '\n')


def run_ours(binary, path, case, prompt):
    with tempfile.TemporaryDirectory() as folder:
        messages = pathlib.Path(folder, 'messages.json')
        messages.write_text(json.dumps(case['messages']))
        args = [binary, 'render', '--template', str(path), '--messages', str(messages),
                '--bos-token', TOKENS['bos_token'], '--eos-token', TOKENS['eos_token']]
        if case.get('tools') is not None:
            tools = pathlib.Path(folder, 'tools.json')
            tools.write_text(json.dumps(case['tools']))
            args += ['--tools', str(tools)]
        if not prompt:
            args += ['--no-generation-prompt']
        if case.get('variables'):
            args += ['--variables', json.dumps(case['variables'])]
        result = subprocess.run(args, capture_output=True)
        if result.returncode == 0:
            return result.stdout.decode(), None
        return None, result.stderr.decode().removeprefix('error: ').rstrip('\n')


def compare(binary, templates):
    different = total = 0
    for path in templates:
        source = path.read_text()
        for case in chat_cases.CASES:
            for prompt in (True, False):
                expected, message = render(source, case, prompt)
                got, error = run_ours(binary, path, case, prompt)
                total += 1
                if got == expected and (message is None or message.strip() in error):
                    continue
                different += 1
                print(f'== {path.name}, {case["name"]}, prompt {prompt}')
                print(f'   expected {expected!r}\n            {message!r}')
                print(f'   got      {got!r}\n            {error!r}')
    for source in chat_cases.LANGUAGE:
        expected = language_result(source).get('text')
        with tempfile.NamedTemporaryFile('w', suffix='.jinja') as file:
            file.write(source)
            file.flush()
            got, error = run_ours(binary, file.name,
                                  {'messages': [], 'variables': chat_cases.VARIABLES}, False)
        total += 1
        if got != expected:
            different += 1
            print(f'== {source!r}\n   expected {expected!r}\n   got      {got!r} {error!r}')
    print(f'{different} of {total} differ')
    return different != 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('templates', type=pathlib.Path)
    parser.add_argument('--compare')
    args = parser.parse_args()
    reference.datetime = Clock
    templates = sorted(args.templates.glob('*.jinja'))
    if args.compare:
        reference.datetime = datetime.datetime
        sys.exit(compare(args.compare, templates))
    write(templates)


if __name__ == '__main__':
    main()
