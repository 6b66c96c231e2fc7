#!/usr/bin/env python3
"""Writes tests/golden/quant/: blocks, and what the gguf Python package dequantizes them to.

Made with gguf 0.19.0, numpy 2.4.6, Python 3.11. Needs nothing else. Usage: make_quant_goldens.py
[DIRECTORY]

For each type, <TYPE>.bin holds, little-endian:
  u32 bytes, u32 elements, the blocks, the elements as f32.
The first blocks have extreme scales (zeros, denormals, the largest, infinities, NaNs), the others
random bytes. hashes.txt has a line per type: the number of elements, and the FNV-1a hash (over the
32-bit words of the result, any NaN as 7fc00000) of 64 Ki elements made from SplitMix64's bytes,
seeded with the type's number.
"""
import pathlib
import sys

import gguf
import numpy as np
from gguf.quants import dequantize

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
         "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"]
# Byte offsets of the f16 fields of a block.
SCALES = {"F16": [0], "BF16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
          "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}
EXTREMES = [0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01,
            0x3c00]


def splitmix64(seed, count):
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        return z ^ (z >> np.uint64(31))


def random_bytes(seed, size):
    return splitmix64(seed, -(-size // 8)).view(np.uint8)[:size].copy()


def fnv1a(values):
    words = values.view(np.uint32).copy()
    words[np.isnan(values)] = 0x7fc00000
    result = 0xcbf29ce484222325
    for word in words.tolist():
        result = ((result ^ word) * 0x100000001b3) & 0xffffffffffffffff
    return result


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "quant")
    out.mkdir(exist_ok=True)
    hashes = []
    for name in TYPES:
        qtype = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[qtype]
        blocks = max(24, 768 // elements) if elements < 256 else 5
        if elements == 256:
            blocks = len(EXTREMES) // len(SCALES[name])
        data = random_bytes(1000 + qtype.value, blocks * size).reshape(blocks, size)
        extreme = 0
        for block in data[: blocks - 1]:
            for offset in SCALES.get(name, []):
                if extreme < len(EXTREMES):
                    block[offset:offset + 2] = np.frombuffer(
                        np.uint16(EXTREMES[extreme]).tobytes(), np.uint8)
                    extreme += 1
        if name == "MXFP4":
            data[:8, 0] = [0, 1, 2, 3, 127, 128, 254, 255]
        with np.errstate(all="ignore"):
            values = dequantize(data.reshape(-1), qtype).astype(np.float32)
            count = 65536
            large = dequantize(random_bytes(qtype.value, count // elements * size), qtype)
        assert values.size == blocks * elements and large.size == count
        with open(out / f"{name}.bin", "wb") as file:
            file.write(np.array([data.size, values.size], np.uint32).tobytes())
            file.write(data.tobytes())
            file.write(values.tobytes())
        hashes.append(f"{name} {count} {fnv1a(large):016x}")
    (out / "hashes.txt").write_text("\n".join(hashes) + "\n")


main()
