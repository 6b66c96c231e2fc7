"""Compares tokamak's token ids with Hugging Face `tokenizers`, on many strings.

  python3 tests/golden/compare_tokenizers.py MODEL.gguf --binary build/src/api/encode_records \
      [--strings 100000] [--first 0] [--text FILE...] [--add-special]

The reference is built from the GGUF file's own vocabulary and merges with the pre-tokenizer that
the model's tokenizer.json has (gguf_to_tokenizers.py). The strings are those of
tokenizer_strings.py, the lines and paragraphs of the given files, and a few of a megabyte. Each is
tokenized with special tokens found in the text and not found. Prints the first differences; exits
1 if there are any.
"""

import argparse
import pathlib
import struct
import subprocess
import sys

import gguf_to_tokenizers
import tokenizer_strings

BATCH = 2000


def long_strings() -> list[bytes]:
    return [unit.encode() * (1_000_000 // len(unit.encode()))
            for unit in ["a", "A", " ", "\n", "7", "中", "!", "👍", "\u0301", "ha", " a", "é", "\0"]
            ] + [b" " * 1_000_000 + b"x", b"\xff" * 1_000_000]


def encode(binary: str, model: str, texts: list[bytes], add: bool, parse: bool) -> list[list[int]]:
    records = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    run = subprocess.run([binary, model, str(int(add)), str(int(parse))], input=records,
                         stdout=subprocess.PIPE, check=True)
    ids, offset = [], 0
    for _ in texts:
        count, = struct.unpack_from("<I", run.stdout, offset)
        ids.append(list(struct.unpack_from(f"<{count}i", run.stdout, offset + 4)))
        offset += 4 + 4 * count
    return ids


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--binary", required=True)
    parser.add_argument("--strings", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--text", nargs="*", default=[])
    args = parser.parse_args()

    reference = gguf_to_tokenizers.load(args.model)
    texts = [tokenizer_strings.test_string(args.first + i) for i in range(args.strings)]
    for path in args.text:
        data = pathlib.Path(path).read_bytes()
        texts += [t for t in data.split(b"\n") if t] + [t for t in data.split(b"\n\n") if t]
    texts += long_strings()

    different = 0
    for parse in (False, True):
        ours = encode(args.binary, args.model, texts, False, parse)
        for start in range(0, len(texts), BATCH):
            batch = [t.decode("utf-8", errors="replace") for t in texts[start:start + BATCH]]
            theirs = reference.encode(batch, parse)
            for i, expected in enumerate(theirs):
                if ours[start + i] == expected:
                    continue
                different += 1
                if different <= 10:
                    place = next((k for k, (a, b) in enumerate(zip(ours[start + i], expected))
                                  if a != b), -1)
                    print(f"string {start + i}, parse_special={parse}: {batch[i][:200]!r}\n"
                          f"  from token {place}: ours {ours[start + i][place:place + 12]}\n"
                          f"  reference {expected[place:place + 12]}")
    print(f"{len(texts)} strings x 2, {sum(map(len, texts))} bytes: {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
