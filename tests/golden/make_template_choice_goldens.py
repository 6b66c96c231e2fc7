#!/usr/bin/env python3
"""Writes chat/template_choice.json: with which of a directory's chat templates transformers renders
a conversation, without and with tools; null if it refuses to choose.

Made with transformers 5.23.0. Usage: make_template_choice_goldens.py
"""
import itertools
import json
import pathlib
import tempfile

import tokenizers
from transformers import PreTrainedTokenizerFast

MESSAGES = [{'role': 'user', 'content': 'Hi'}]
TOOLS = [{'type': 'function', 'function': {'name': 'f', 'description': 'd', 'parameters': {
    'type': 'object', 'properties': {}}}}]


def template(name):
    return name + ' {{ messages[0].content }}{% for t in tools or [] %} {{ t.function.name }}{% endfor %}'


def named(*names):
    return [{'name': name, 'template': template('list ' + name)} for name in names]


FIELDS = [None, template('field'), named('default'), named('default', 'tool_use'),
          named('tool_use'), named('rag', 'tool_use', 'default')]
FILES = ['chat_template.jinja', 'additional_chat_templates/tool_use.jinja',
         'additional_chat_templates/rag.jinja']


def render(folder, tools):
    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        return tokenizer.apply_chat_template(MESSAGES, tools=tools, tokenize=False)
    except ValueError:
        return None


def case(field, names):
    files = {name: template('file ' + name) for name in names}
    if field is not None:
        files['tokenizer_config.json'] = json.dumps({'chat_template': field})
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        tokenizers.Tokenizer(tokenizers.models.BPE(vocab={'a': 0}, merges=[])).save(
            str(root / 'tokenizer.json'))
        for name, text in files.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
        return {'files': files, 'plain': render(folder, None), 'tools': render(folder, TOOLS)}


def main():
    cases = [case(field, names) for field in FIELDS
             for count in range(len(FILES) + 1) for names in itertools.combinations(FILES, count)]
    path = pathlib.Path(__file__).parent / 'chat' / 'template_choice.json'
    path.write_text(json.dumps({'messages': MESSAGES, 'tools': TOOLS, 'cases': cases}, indent=1) + '\n')


if __name__ == '__main__':
    main()
