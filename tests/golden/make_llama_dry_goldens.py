#!/usr/bin/env python3
"""Applies llama.cpp's DRY sampler to random histories, through llama-cpp-python.

Writes llama_dry.txt, read by src/local/dry_breakers_test.cc. The vocabulary is that of
llama_tied.gguf, all logits are 0. One case is two lines, the second of which is the result:
  multiplier base allowed_length penalty_last_n : breakers, as hexadecimal bytes : history
  id logit, for each token whose logit is no longer 0

Usage: make_llama_dry_goldens.py > llama_dry.txt     (with llama-cpp-python 0.3.36)
"""
import ctypes
import pathlib
import random

import llama_cpp

# Tokens of one letter, "ab", control characters and names such as <|extra_7|>.
LETTERS = [64, 65, 66, 256]
TOKENS = LETTERS + [198, 25, 1, 9, 258, 259, 268]
BREAKERS = ['\n', ':', '"', '*', 'b', 'ab', 'ba', 'aab', 'abc', 'cab\n', '7|>', '|>a', '|>ab', '>a\n', '<|extra_1']


def history():
    tokens = random.choice([LETTERS, LETTERS[:2], TOKENS, TOKENS, TOKENS])
    made = []
    for _ in range(random.randrange(1, 12)):
        if made and random.random() < 0.6:  # repeats a part
            begin = random.randrange(len(made))
            made += made[begin:begin + random.randrange(1, 12)]
        else:
            made += random.choices(tokens, k=random.randrange(1, 8))
    return made


def case(vocab, count):
    """Writes a case, or none if it would be one more without an effect. Returns the number."""
    multiplier, base = random.choice([0.5, 0.8, 2]), random.choice([1, 1.125, 1.75, 3])
    allowed, last_n = random.choice([0, 1, 2, 2, 5]), random.choice([1, 5, 20, 64, 64, 1000])
    breakers = random.choice([[], ['\n', ':', '"', '*'],
                              random.sample(BREAKERS, random.randrange(1, 6))])
    texts = (ctypes.c_char_p * len(breakers))(*[b.encode() for b in breakers])
    sampler = llama_cpp.llama_sampler_init_dry(
        vocab, multiplier, base, allowed, last_n,
        ctypes.cast(texts, ctypes.POINTER(ctypes.c_char_p)), len(breakers))
    tokens = history()
    for token in tokens:
        llama_cpp.llama_sampler_accept(sampler, token)
    data = (llama_cpp.llama_token_data * count)()
    for i in range(count):
        data[i].id, data[i].logit = i, 0
    array = llama_cpp.llama_token_data_array(data=data, size=count, selected=-1, sorted=False)
    llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
    llama_cpp.llama_sampler_free(sampler)
    changed = [f'{x.id} {x.logit:.9g}' for x in data if x.logit != 0]
    if not changed and random.random() < 0.7:
        return 0
    print(multiplier, base, allowed, last_n, ':', *(b.encode().hex() for b in breakers), ':', *tokens)
    print(*changed)
    return 1


def main():
    random.seed(20261127)
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    path = pathlib.Path(__file__).parent / 'llama_tied.gguf'
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    vocab = llama_cpp.llama_model_get_vocab(model)
    written = 0
    while written < 300:
        written += case(vocab, llama_cpp.llama_vocab_n_tokens(vocab))


main()
