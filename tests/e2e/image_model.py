"""Writes a Hugging Face directory with a golden LLaVA, a tokenizer whose tokens are their ids in
brackets ("[17]") except for <image>, and a chat template. So texts tell tokens."""

import json
import pathlib
import re

import support

GOLDENS = support.ROOT / 'tests' / 'golden'
IMAGE = 126
# As the template of llava-hf/llava-1.5-7b-hf treats parts, without the words around them.
TEMPLATE = """
{%- for message in messages -%}
  {%- if message.content is string -%}{{ message.content }}
  {%- else -%}
    {%- for part in message.content -%}{{ '<image>' if part.type == 'image' else part.text }}{%- endfor -%}
  {%- endif -%}
{%- endfor -%}"""


def text_of(tokens):
    return ''.join(f'[{token}]' for token in tokens)


def tokens_of(text):
    assert re.fullmatch(r'(\[\d+\])*', text), text
    return [int(token) for token in re.findall(r'\d+', text)]


def conversations(model, file='pictures.json'):
    """Those that transformers has had with the model: lists of turns."""
    made = json.loads((GOLDENS / file).read_text())['conversations']
    return [conversation['turns'] for conversation in made if conversation['model'] == model]


def picture(name):
    return GOLDENS / 'images' / name


def write(folder, model, processor=True):
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    source = GOLDENS / 'hf' / model
    for file in source.iterdir():
        if processor or file.name != 'preprocessor_config.json':
            (folder / file.name).symlink_to(file)
    config = json.loads((source / 'config.json').read_text())
    names = [f'[{i}]' for i in range(config['text_config']['vocab_size'])]
    names[IMAGE] = '<image>'
    added = [{'id': i, 'content': name, 'special': i == IMAGE, 'single_word': False, 'lstrip': False,
              'rstrip': False, 'normalized': False} for i, name in enumerate(names)]
    byte_level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': True}
    (folder / 'tokenizer.json').write_text(json.dumps({
        'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': added,
        'normalizer': None, 'post_processor': None, 'pre_tokenizer': byte_level, 'decoder': byte_level,
        'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'fuse_unk': False,
                  'continuing_subword_prefix': None, 'end_of_word_suffix': None,
                  'vocab': {name: i for i, name in enumerate(names)}, 'merges': []}}))
    (folder / 'tokenizer_config.json').write_text(json.dumps({
        'tokenizer_class': 'GPT2Tokenizer', 'add_bos_token': False}))
    (folder / 'chat_template.jinja').write_text(TEMPLATE)
