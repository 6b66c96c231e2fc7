#!/usr/bin/env python3
"""Products of Hopper's tensor cores as the package mmasim computes them, on random and hard inputs.

  make_tensor_core_goldens.py [--seed N] [--output FILE]     writes tests/golden/tensor_core.bin
  make_tensor_core_goldens.py --check TEST [--products N]    gives N sums of products of each
                                                             instruction and pair of types to TEST,
                                                             tensor_core_arithmetic_test.cc's binary

Needs a Python with mmasim 2.1.1, torch 2.15 and numpy 2.4, which scripts/check-tensor-cores
installs; mmasim compiles a file on import.

A file is a sequence of tiles: a line "INSTRUCTION A_TYPE B_TYPE m n k KIND", then the bits of a [m,
k], b [k, n], the accumulators [m, n] and the results [m, n]. mmasim has no 8-bit mma.sync for
Hopper. Here such products are composed from its f16 products, as ptxas 13.0 does for sm_90a: both
operands become f16, elements 0 and 1 of every four along k are summed from zero, then elements 2
and 3, and the accumulator is added last, in f32.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from mmasim import nv_ptx

M, N = 16, 8
GOLDEN = pathlib.Path(__file__).with_name('tensor_core.bin')
# Exponent bits, fraction bits, bits of the first value that is not finite.
FORMATS = {'bf16': (8, 7, 0x7F80), 'f16': (5, 10, 0x7C00), 'e4m3': (4, 3, 0x7F), 'e5m2': (5, 2, 0x7C)}
TORCH = {'bf16': torch.bfloat16, 'f16': torch.float16, 'e4m3': torch.float8_e4m3fn, 'e5m2': torch.float8_e5m2}
PRODUCTS = [('mma', 'bf16', 'bf16', 16), ('mma', 'bf16', 'bf16', 8), ('mma', 'f16', 'f16', 16),
            ('mma', 'f16', 'f16', 8), ('mma', 'e4m3', 'e4m3', 32), ('mma', 'e5m2', 'e4m3', 32),
            ('mma', 'e4m3', 'e5m2', 16), ('wgmma', 'bf16', 'bf16', 16), ('wgmma', 'f16', 'f16', 16),
            ('wgmma', 'e4m3', 'e4m3', 32), ('wgmma', 'e5m2', 'e5m2', 32), ('wgmma', 'e4m3', 'e5m2', 32),
            ('wgmma', 'e5m2', 'e4m3', 32)]
KINDS = ['normal', 'wide', 'cancelling', 'tiny', 'huge', 'cut', 'ties', 'zeros', 'subnormal', 'specials', 'any bits']


def width(name):
    return 8 if name in ('e4m3', 'e5m2') else 16


def pack(name, sign, exponent, fraction):
    """Packs finite elements; clamps exponents to the type's range."""
    exponent_bits, fraction_bits, first_special = FORMATS[name]
    bias = (1 << exponent_bits - 1) - 1
    field = np.clip(exponent + bias, 0, (first_special - 1) >> fraction_bits)
    magnitude = np.minimum(field << fraction_bits | fraction & (1 << fraction_bits) - 1, first_special - 1)
    return sign << exponent_bits + fraction_bits | magnitude


def operand(rng, name, other, kind, shape, negate):
    """[tiles, lanes, k]. `negate`: for the second operand of products that cancel."""
    exponent_bits, fraction_bits, first_special = FORMATS[name]
    least = 2 - (1 << exponent_bits - 1)
    all_ones = (1 << fraction_bits) - 1
    sign = rng.integers(0, 2, shape)
    fraction = rng.integers(0, all_ones + 1, shape)
    exponent = -np.minimum(rng.geometric(0.5, shape), 8)
    if kind == 'wide':
        spread = min(26, -least)
        exponent = rng.integers(-spread, spread + 1, shape)
    elif kind == 'tiny':  # products near f32's subnormals, or subnormal operands
        middle = -68 if name == 'bf16' else least
        exponent = rng.integers(middle - 12, middle + 7, shape)
    elif kind == 'huge':
        exponent = rng.integers(60, 65, shape) if name == 'bf16' else np.full(shape, 127)
        fraction |= rng.integers(0, all_ones + 1, shape)
    elif kind == 'cut':  # most products are near the last bit that is kept
        kept = 13 if width(name) == 8 else 25
        low = rng.random(shape) < 0.8
        exponent = np.where(low, -(kept // 2) + rng.integers(-2, 2, shape), 0)
    elif kind == 'ties':  # a few bits per product, so that sums lie halfway
        fraction = np.where(rng.random(shape) < 0.5, 0, rng.choice([all_ones, 1 << fraction_bits - 1, 1], shape))
        exponent = rng.integers(-13, 2, shape)
        full = rng.random((*shape[:-1], 1)) < 0.3  # the largest sums
        sign, exponent = np.where(full, 0, sign), np.where(full, 0, exponent)
        fraction = np.where(full, all_ones, fraction)
    elif kind == 'zeros':  # next to large factors
        exponent = np.where(rng.random(shape) < 0.5, 127, rng.integers(-20, 0, shape))
    elif kind == 'subnormal':  # bf16: all products are below the least exponent for alignment
        exponent = rng.integers(least - 1, -least, shape)
        lanes = rng.random((*shape[:-1], 1)) < 0.6
        exponent = np.where(lanes, rng.choice([-70, -79, -80], shape) if name == 'bf16' else least - 1, exponent)
        # Powers of two, so that sums are just above or just below the last bit that is kept.
        fraction = np.where(lanes & (name == 'bf16'), 0, fraction)
    bits = pack(name, sign, exponent, fraction)
    if kind == 'cancelling':
        pairs = bits.reshape(*shape[:-1], -1, 2)
        flip = (1 << exponent_bits + fraction_bits) if negate else 0
        off = (rng.random(pairs.shape[:-1]) < 0.1).astype(int)  # by the last bit
        pairs[..., 1] = pairs[..., 0] ^ flip ^ off
        pairs[..., 1] = np.where(pairs[..., 1] & (1 << exponent_bits + fraction_bits) - 1 < first_special,
                                 pairs[..., 1], pairs[..., 0] ^ flip)
    elif kind == 'zeros':
        bits = np.where(rng.random(shape) < 0.9, sign << exponent_bits + fraction_bits, bits)
    elif kind == 'specials':
        top = (1 << exponent_bits + fraction_bits) - 1
        special = rng.choice([0, first_special, first_special, top], shape)
        there = rng.random(shape) < rng.choice([0, 0.02, 0.1], (shape[0], shape[1], 1))
        bits = np.where(there, special | sign << exponent_bits + fraction_bits, bits)
    elif kind == 'any bits':
        bits = rng.integers(0, 1 << width(name), shape)
    return bits.astype(np.uint8 if width(name) == 8 else np.uint16)


def accumulators(rng, types, kind, shape):
    sign = rng.integers(0, 2, shape)
    fraction = rng.integers(0, 1 << 23, shape)
    exponent = rng.integers(-6, 4, shape)
    if kind in ('wide', 'cut'):
        exponent = rng.integers(-32, 33, shape)
    elif kind == 'tiny':
        exponent = rng.integers(-140, -115, shape) if types[0] == 'bf16' else rng.integers(-45, -5, shape)
    elif kind in ('zeros', 'subnormal'):
        exponent = rng.integers(-40, 0, shape)
    elif kind == 'huge':
        exponent = rng.integers(120, 128, shape)
        fraction |= rng.integers(0, 1 << 23, shape)
    elif kind == 'ties':
        fraction &= -1 << rng.integers(0, 24, shape)
    bits = sign << 31 | np.clip(exponent + 127, 0, 254) << 23 | fraction
    if kind == 'any bits':
        bits = rng.integers(0, 1 << 32, shape)
    if kind == 'specials':
        special = rng.choice([0x7F800000, 0x7FC00000, 0x7F800001], shape) | sign << 31
        bits = np.where(rng.random(shape) < 0.05, special, bits)
    zero = rng.random(shape) < (0.6 if kind in ('zeros', 'subnormal', 'cancelling', 'tiny') else 0.05)
    return np.where(zero, sign << 31, bits).astype(np.uint32)


def to_torch(bits, dtype):
    signed = bits.view({1: np.uint8, 2: np.int16, 4: np.int32}[bits.itemsize])
    return torch.from_numpy(np.ascontiguousarray(signed)).view(dtype)


def results(instruction, a_type, b_type, k, a, b, c):
    """a [tiles, M, k], b [tiles, N, k], c [tiles, M, N], bits of the results."""
    shape = (len(a), M, N, k)
    a = to_torch(a, TORCH[a_type])[:, :, None, :].expand(shape)
    b = to_torch(b, TORCH[b_type])[:, None, :, :].expand(shape)
    c = to_torch(c, torch.float32)
    if instruction == 'wgmma':
        d = nv_ptx.WGMMA('Hopper', f'm64n{N}k{k}.f32.{a_type}.{b_type}').dpa(a, b, c)
    elif width(a_type) == 16:
        d = nv_ptx.MMA('Hopper', f'm16n8k{k}.f32.{a_type}.{b_type}.f32').dpa(a, b, c)
    else:
        mma = nv_ptx.MMA('Hopper', f'm16n8k{k // 2}.f32.f16.f16.f32')
        a, b = (x.to(torch.float16).unflatten(-1, (-1, 2, 2)) for x in (a, b))
        d = torch.zeros_like(c)
        for half in range(2):
            d = mma.dpa(a[..., half, :].flatten(-2), b[..., half, :].flatten(-2), d)
        d = c + d
        d.view(torch.int32)[d.isnan()] = 0x7FFFFFFF
    return d.contiguous().view(torch.int32).numpy().view(np.uint32)


def tiles(rng, instruction, a_type, b_type, k, kind, count):
    a = operand(rng, a_type, b_type, kind, (count, M, k), False)
    b = operand(rng, b_type, a_type, kind, (count, N, k), True)
    c = accumulators(rng, (a_type, b_type), kind, (count, M, N))
    d = results(instruction, a_type, b_type, k, a, b, c)
    head = f'{instruction} {a_type} {b_type} {M} {N} {k} {kind}\n'.encode()
    for i in range(count):
        yield head + b''.join(x.astype(x.dtype.newbyteorder('<')).tobytes() for x in (a[i], b[i].T, c[i], d[i]))


def check(test, products, seed):
    """Runs the test on fresh tiles; stops at the first difference."""
    for product in PRODUCTS:
        done = 0
        per_kind = -(-products // (M * N * len(KINDS)))
        rng = np.random.default_rng([seed, PRODUCTS.index(product)])
        with tempfile.NamedTemporaryFile(suffix='.bin') as file:
            for kind in KINDS:
                for first in range(0, per_kind, 256):
                    count = min(256, per_kind - first)
                    file.writelines(tiles(rng, *product, kind, count))
                    done += count * M * N
            file.flush()
            run = subprocess.run([test, '--gtest_filter=*Mmasim*'], text=True, capture_output=True,
                                 env={**os.environ, 'TOKAMAK_TENSOR_CORE_GOLDEN': file.name})
        if run.returncode != 0:
            sys.exit(f'{" ".join(map(str, product))}, --seed {seed}:\n{run.stdout}{run.stderr}')
        print(*product, f'{done} sums equal mmasim\'s', flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--output', default=GOLDEN)
    parser.add_argument('--check', metavar='TEST')
    parser.add_argument('--products', type=int, default=1_000_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.check:
        check(options.check, options.products, options.seed)
        return
    rng = np.random.default_rng(options.seed)
    with open(options.output, 'wb') as file:
        for product in PRODUCTS:
            for kind in KINDS:
                file.writelines(tiles(rng, *product, kind, 1))


if __name__ == '__main__':
    main()
