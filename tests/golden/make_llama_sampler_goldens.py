#!/usr/bin/env python3
"""Applies llama.cpp's samplers to random logits, through its library.

Writes llama_samplers.txt, read by src/ops/sampling/llama_samplers_test.cc. One case is two lines, the
second of which is the result:
  top_n_sigma n : logits in thousandths                             ids that stay, ascending
  xtc threshold : logits in thousandths                             ids that stay, ascending
  dynatemp temperature range exponent : logits in thousandths       the temperature
  penalties last_n repeat frequency presence history : logits in thousandths
                                                                    the new logits
Leaves out cases within rounding errors of a threshold, because single precision may decide there.

Usage: make_llama_sampler_goldens.py libllama.so > llama_samplers.txt
       (llama.cpp as in llama-cpp-python 0.3.36)
"""
import ctypes
import math
import random
import sys


class TokenData(ctypes.Structure):
    _fields_ = [('id', ctypes.c_int32), ('logit', ctypes.c_float), ('p', ctypes.c_float)]


class TokenDataArray(ctypes.Structure):
    _fields_ = [('data', ctypes.POINTER(TokenData)), ('size', ctypes.c_size_t),
                ('selected', ctypes.c_int64), ('sorted', ctypes.c_bool)]


def load(path):
    lib = ctypes.CDLL(path)
    f, i, u = ctypes.c_float, ctypes.c_int32, ctypes.c_uint32
    for name, arguments in {'top_n_sigma': [f], 'xtc': [f, f, ctypes.c_size_t, u],
                            'temp_ext': [f, f, f], 'penalties': [i, i, f, f, f]}.items():
        init = getattr(lib, 'llama_sampler_init_' + name)
        init.argtypes, init.restype = arguments, ctypes.c_void_p
    lib.llama_sampler_apply.argtypes = [ctypes.c_void_p, ctypes.POINTER(TokenDataArray)]
    lib.llama_sampler_accept.argtypes = [ctypes.c_void_p, i]
    lib.llama_sampler_free.argtypes = [ctypes.c_void_p]
    return lib


def apply(lib, sampler, logits, history=()):
    """Returns {id: logit} of what the sampler leaves."""
    for token in history:
        lib.llama_sampler_accept(sampler, token)
    data = (TokenData * len(logits))(*[TokenData(i, x, 0) for i, x in enumerate(logits)])
    array = TokenDataArray(data, len(logits), -1, False)
    lib.llama_sampler_apply(sampler, ctypes.byref(array))
    lib.llama_sampler_free(sampler)
    return {array.data[i].id: array.data[i].logit for i in range(array.size)
            if array.data[i].logit > -math.inf}


def top_n_sigma(lib, logits):
    n = random.choice([0.125, 0.5, 1, 1.5, 2.5])
    mean = sum(logits) / len(logits)
    sigma = math.sqrt(sum((x - mean)**2 for x in logits) / len(logits))
    if min(abs(max(logits) - n * sigma - x) for x in logits) < 1e-4:
        return None
    left = apply(lib, lib.llama_sampler_init_top_n_sigma(n), logits)
    return f'top_n_sigma {n}', sorted(left)


def xtc(lib, logits):
    threshold = random.choice([0, 2**-10, 0.03125, 0.0625, 0.125, 0.25, 0.5])
    total = sum(math.exp(x) for x in logits)
    near = min(abs(math.exp(x) / total - threshold) for x in logits) < 1e-5
    if (near and threshold > 0) or len(set(logits)) < len(logits):
        return None
    left = apply(lib, lib.llama_sampler_init_xtc(1, threshold, 0, 1), logits)
    return f'xtc {threshold}', sorted(left)


def dynatemp(lib, logits):
    temperature = random.choice([0.25, 0.5, 1, 1.5])
    reach = random.choice([0.125, 0.5, 1, 2])
    exponent = random.choice([0.5, 1, 1, 2])
    largest = max(range(len(logits)), key=lambda i: abs(logits[i]))
    if len(logits) < 2 or abs(logits[largest]) < 1:
        return None
    left = apply(lib, lib.llama_sampler_init_temp_ext(temperature, reach, exponent), logits)
    if largest not in left or abs(left[largest]) > 1e6:  # a temperature of almost 0
        return None
    return f'dynatemp {temperature} {reach} {exponent}', [logits[largest] / left[largest]]


def penalties(lib, logits):
    last_n = random.choice([0, 1, 3, 16, 64])
    values = [random.choice([1, 0.75, 1.25]), random.choice([0, -0.5, 0.25]),
              random.choice([0, -0.75, 0.5])]
    history = [random.randrange(len(logits)) for _ in range(random.randrange(1, 80))]
    sampler = lib.llama_sampler_init_penalties(len(logits), last_n, *values)
    left = apply(lib, sampler, logits, history)
    return ' '.join(map(str, ['penalties', last_n, *values, *history])), [
        left[i] for i in range(len(logits))]


def main():
    random.seed(20260114)
    lib = load(sys.argv[1])
    for make in (top_n_sigma, xtc, dynatemp, penalties):
        written = 0
        while written < 60:
            count = random.choice([1, 2, 5, 33, 100])
            scale = random.choice([0.2, 1, 4, 10])
            thousandths = [round(random.gauss(0, scale) * 1000) for _ in range(count)]
            case = make(lib, [ctypes.c_float(t / 1000).value for t in thousandths])
            if case is None:
                continue
            parameters, result = case
            print(parameters, ':', *thousandths)
            print(*(x if isinstance(x, int) else f'{x:.9g}' for x in result))
            written += 1


main()
