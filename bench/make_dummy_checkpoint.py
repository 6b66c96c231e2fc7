#!/usr/bin/env python3
"""Writes a Hugging Face directory with random bf16 weights of an architecture, and a tokenizer.

  bench/make_dummy_checkpoint.py bench/configs/llama3.1-8b.json OUT [--device cuda]

Needs torch and transformers. Such a directory loads, tokenizes and serves like a real one, in any
engine, so that servers can be compared under load (`tokamak bench serve`), which sends text, and loading
can be measured. The tokenizer has one token for each word of the load generator, and as many
tokens in all as the model.
"""

import argparse
import json
import pathlib
import re

import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[1]


def load_words():
    """The words of src/loadgen/workload.cc."""
    source = (ROOT / 'src/loadgen/workload.cc').read_text()
    return re.findall(r'"(\w+)"', re.search(r'kWords\[\] = \{(.*?)\};', source, re.DOTALL).group(1))


def make_tokenizer(size):
    vocabulary, merges = {}, []

    def add(token):
        return vocabulary.setdefault(token, len(vocabulary))

    for character in sorted(pre_tokenizers.ByteLevel.alphabet()):
        add(character)
    for word in load_words():
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                merges.append((word[:end - 1], word[end - 1]))
                add(word[:end])
        merges.append(('Ġ', word))
        add('Ġ' + word)
    while len(vocabulary) < size - 1:  # no text contains them, but the model may write them
        add(f'Ġunused{len(vocabulary)}')
    tokenizer = Tokenizer(BPE(vocabulary, merges))
    tokenizer.add_special_tokens([AddedToken('<|end|>', special=True)])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', type=pathlib.Path)
    parser.add_argument('out', type=pathlib.Path)
    parser.add_argument('--device', default='cpu', help='where the weights are drawn')
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    raw = json.loads(args.config.read_text())
    config = AutoConfig.for_model(**raw)
    config.eos_token_id = config.vocab_size - 1
    torch.manual_seed(0)
    with torch.device(args.device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(args.out)
    make_tokenizer(config.vocab_size).save(str(args.out / 'tokenizer.json'))
    (args.out / 'tokenizer_config.json').write_text(json.dumps({'eos_token': '<|end|>'}))


if __name__ == '__main__':
    main()
