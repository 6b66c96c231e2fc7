#!/usr/bin/env python3
"""Writes chat/images.json: conversations with images as transformers renders them with the templates
of models that see.

The templates are those of the models' repositories, shortened where they treat videos and tools.
Made with transformers 5.23.0 and Jinja2 3.1.6. Usage: make_image_chat_goldens.py
"""
import json
import pathlib

from transformers.utils import chat_template_utils as reference

LLAVA = (
    "{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ message['role'].upper() + ': '}}{% endif %}{# Render all images first #}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\\n' }}{% endfor %}{# Render all text next #}{% if message['role'] != 'assistant' %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] + ' '}}{% endfor %}{% else %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% generation %}{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}")
LLAVA_NEXT = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' }}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] }}{% endfor %}{{ ' [/INST]' }}{% else %}"
    "{% for content in message['content'] %}{{ ' ' + content['text'] + '</s>' }}{% endfor %}{% endif %}"
    "{% endfor %}")
QWEN2_VL = (
    "{% set image_count = namespace(value=0) %}{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' or 'image' in content or "
    "'image_url' in content %}{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}"
    "{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
MISTRAL_SMALL = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{% if message['content'] is string %}{{ '[INST]' + message['content'] + '[/INST]' }}{% else %}"
    "{{ '[INST]' }}{% for block in message['content'] %}{% if block['type'] == 'text' %}"
    "{{ block['text'] }}{% elif block['type'] in ['image', 'image_url'] %}{{ '[IMG]' }}{% else %}"
    "{{ raise_exception('Only text and image blocks are supported in message content!') }}{% endif %}"
    "{% endfor %}{{ '[/INST]' }}{% endif %}{% elif message['role'] == 'system' %}"
    "{{ '[SYSTEM_PROMPT]' + (message['content'] if message['content'] is string else "
    "message['content'][0]['text']) + '[/SYSTEM_PROMPT]' }}{% elif message['role'] == 'assistant' %}"
    "{{ (message['content'] if message['content'] is string else message['content'][0]['text']) + "
    "eos_token }}{% endif %}{% endfor %}")
GEMMA3 = (
    "{{ bos_token }}{% for message in messages %}{% set role = 'model' if message['role'] == 'assistant' "
    "else message['role'] %}{{ '<start_of_turn>' + role + '\n' }}{% if message['content'] is string %}"
    "{{ message['content'] | trim }}{% elif message['content'] is iterable %}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}{{ '<start_of_image>' }}"
    "{% elif item['type'] == 'text' %}{{ item['text'] | trim }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}"
    "{% endif %}")
GLM41V = (
    "[gMASK]<sop>\n{%- for msg in messages %}\n    {%- if msg.role == 'system' %}\n<|system|>\n{{ msg.content }}\n"
    "    {%- elif msg.role == 'user' %}\n<|user|>{{ '\\n' }}\n        {%- if msg.content is string %}\n"
    "{{ msg.content }}\n        {%- else %}\n            {%- for item in msg.content %}\n"
    "                {%- if item.type == 'video' or 'video' in item %}\n"
    "<|begin_of_video|><|video|><|end_of_video|>\n"
    "                {%- elif item.type == 'image' or 'image' in item %}\n"
    "<|begin_of_image|><|image|><|end_of_image|>\n                {%- elif item.type == 'text' %}\n"
    "{{ item.text }}\n                {%- endif %}\n            {%- endfor %}\n        {%- endif %}\n"
    "    {%- elif msg.role == 'assistant' %}\n        {%- if msg.metadata %}\n"
    "<|assistant|>{{ msg.metadata }}\n{{ msg.content }}\n        {%- else %}\n<|assistant|>\n"
    "{{ msg.content }}\n        {%- endif %}\n    {%- endif %}\n{%- endfor %}\n"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}")

TEMPLATES = {'LLaVA 1.5': (LLAVA, '<image>'), 'LLaVA-NeXT': (LLAVA_NEXT, '<image>'),
             'Qwen2-VL': (QWEN2_VL, '<|image_pad|>'), 'Mistral Small 3.1': (MISTRAL_SMALL, '[IMG]'),
             'Gemma 3': (GEMMA3, '<start_of_image>'), 'GLM-4.1V': (GLM41V, '<|image|>')}
# They would print parts of an assistant's message.
ASSISTANT_IN_TEXT = {'GLM-4.1V'}

IMAGE = {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,Zm9v'}}


def text(content):
    return {'type': 'text', 'text': content}


def user(*parts):
    return {'role': 'user', 'content': list(parts)}


CONVERSATIONS = [
    [user(IMAGE, text('What is it?'))],
    [user(text('What is it?'), IMAGE)],
    [user(IMAGE)],
    [user(IMAGE, text('One.'), IMAGE, text('Two.'), text(' Both?'))],
    [user(text('No image.'))],
    [user(IMAGE, text('What is it?')), {'role': 'assistant', 'content': 'A cat.'},
     user(IMAGE, text('And this?')), {'role': 'assistant', 'content': 'A dog.'},
     user(text('Which is larger?'))],
]


def for_transformers(message, assistant_in_text):
    """The message in the form that transformers documents: all contents are parts."""
    content = message['content']
    if assistant_in_text and message['role'] == 'assistant':
        return message
    parts = [text(content)] if isinstance(content, str) else content
    return {**message, 'content': [{'type': 'image'} if part['type'] == 'image_url' else part
                                   for part in parts]}


def main():
    goldens = []
    for name, (source, placeholder) in TEMPLATES.items():
        texts = []
        for conversation in CONVERSATIONS:
            [rendered], _ = reference.render_jinja_template(
                [[for_transformers(message, name in ASSISTANT_IN_TEXT) for message in conversation]], chat_template=source,
                add_generation_prompt=True, bos_token='<s>', eos_token='</s>')
            texts.append(rendered)
        goldens.append({'model': name, 'placeholder': placeholder, 'template': source,
                        'texts': texts})
    path = pathlib.Path(__file__).parent / 'chat' / 'images.json'
    path.write_text(json.dumps({'conversations': CONVERSATIONS, 'models': goldens}, indent=1) + '\n')


if __name__ == '__main__':
    main()
