#!/usr/bin/env python3
"""Writes tests/golden/quant/e4m3.bin: FP8 E4M3 to and from f32, as the ml_dtypes package converts.

Made with ml_dtypes 0.6.0, numpy 2.4.6, Python 3.11. Needs nothing else. Usage: make_e4m3_goldens.py
[FILE]

Little-endian: the values of the 256 codes as f32, then pairs of an f32 and the u32 code that it
becomes. The floats are all codes' values, the middles between neighbours, the floats next to each of
these, the limits of f32, and random bit patterns. Before ml_dtypes, which makes NaN of what is too
large, they are clipped to ±448: OCP's "saturating" conversion.
"""
import pathlib
import sys

import ml_dtypes
import numpy as np


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "quant" / "e4m3.bin"
    values = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    finite = values[:127]
    exact = np.concatenate([finite, (finite[:-1] + finite[1:]) / 2, np.float32([464, 480, 1e38])])
    limits = np.array([0x7f800000, 0x7f7fffff, 0x00000001, 0x00800000, 0x7fc00000, 0x7f800001],
                      np.uint32).view(np.float32)
    sizes = np.concatenate([exact, np.nextafter(exact, np.float32(0)),
                            np.nextafter(exact, np.float32(np.inf)), limits])
    random = np.random.default_rng(1).integers(0, 1 << 32, 1000, np.uint32)
    # Half of them have exponents around those of E4M3.
    random[::2] = (random[::2] & 0x87ffffff) | 0x38000000
    floats = np.concatenate([sizes, -sizes, random.view(np.float32)])
    with np.errstate(invalid="ignore"):
        codes = np.clip(floats, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    pairs = np.stack([floats.view(np.uint32), codes.astype(np.uint32)], axis=1)
    pathlib.Path(path).write_bytes(values.astype("<f4").tobytes() + pairs.astype("<u4").tobytes())


main()
