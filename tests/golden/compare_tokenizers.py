"""Compares tokamak's token ids, and the text to which they decode, with another tokenizer's.

  python3 tests/golden/compare_tokenizers.py MODEL --binary build/src/tokenizer/load/encode_records \
      [--strings 100000] [--first 0] [--found 0] [--text FILE...] [--long 1000000] [--code-points]

MODEL is a .gguf file, a Hugging Face directory, or a vendor's own file (vendor_tokenizers.py). The
reference is the directory's tokenizer.json through `tokenizers`; or is built from the GGUF file's
vocabulary and merges with the pre-tokenizer of the model's tokenizer.json (gguf_to_tokenizers.py);
or is the vendor's code. The strings are those of tokenizer_strings.py (the tests compare hashes of
the first 100,000); with --found N also N strings from this machine (messages of its programs in
many languages, lines of Python code); the lines and paragraphs of the given files; a few of --long
characters; and with --code-points one per code point. Each is tokenized with special tokens found
in the text and not found. Prints the first differences; exits with 1 if there are any.
"""

import argparse
import gettext
import json
import pathlib
import random
import struct
import subprocess
import sys
import sysconfig

import tokenizer_strings

BATCH = 2000


def long_strings(size: int) -> list[bytes]:
    units = ["a", "A", " ", "\n", "7", "中", "!", "👍", "\u0301", "ha", " a", "é", "\0"]
    return [u.encode() * (size // len(u.encode())) for u in units] + [b" " * size + b"x", b"\xff" * size]


def translations() -> list[str]:
    """Sentences from programs' messages, in many languages."""
    found = set()
    for path in sorted(pathlib.Path("/usr/share/locale").glob("*/LC_MESSAGES/*.mo"))[::7]:
        try:
            with open(path, "rb") as file:
                catalog = gettext.GNUTranslations(file)._catalog
        except (OSError, ValueError, LookupError):  # some are not well-formed
            continue
        found.update(t for t in catalog.values() if isinstance(t, str) and t)
    return sorted(found)


def code() -> list[str]:
    found = set()
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        lines = path.read_text(errors="replace").split("\n")
        found.update("\n".join(lines[i:i + 1 + i % 5]) for i in range(len(lines)))
    return sorted(found)


def strings(count: int, first: int, found: int) -> list[bytes]:
    varied = tokenizer_strings.Varied()
    texts = [varied.make(first + i) for i in range(count)]
    if found == 0:
        return texts
    draw = random.Random(first)
    lines = code()
    natural = translations() or lines
    texts += [draw.choice(natural).encode() for _ in range(found - found // 2)]
    return texts + [draw.choice(lines).encode(errors="replace") for _ in range(found // 2)]


def every_code_point() -> list[bytes]:
    """Every code point that is or may be assigned: within a word, alone and after a digit."""
    points = [*range(0xD800), *range(0xE000, 0x33480), *range(0xE0000, 0xE01F0)]
    return [f"ab{chr(p)}cd  {chr(p)} 1{chr(p)}!".encode() for p in points]


class Directory:
    """A tokenizer.json, with special tokens found in the text and not found."""

    show_special = False

    def __init__(self, folder: str):
        import tokenizers
        value = json.loads(pathlib.Path(folder, "tokenizer.json").read_text())
        value["truncation"] = value["padding"] = None
        self._special = tokenizers.Tokenizer.from_str(json.dumps(value))
        value["added_tokens"] = [t for t in value["added_tokens"] if not t["special"]]
        value["post_processor"] = None
        self._plain = tokenizers.Tokenizer.from_str(json.dumps(value))
        # If some added tokens are missing, `tokenizers` numbers the others differently.
        self._ids = {self._plain.token_to_id(t["content"]): self._special.token_to_id(t["content"])
                     for t in value["added_tokens"]}

    def encode(self, texts: list[str], parse_special: bool) -> list[list[int]]:
        if parse_special:
            return [e.ids for e in self._special.encode_batch(texts, add_special_tokens=False)]
        return [[self._ids.get(i, i) for i in e.ids]
                for e in self._plain.encode_batch(texts, add_special_tokens=False)]

    def decode(self, ids: list[int]) -> str:
        return self._special.decode(ids)


def open_reference(model: str):
    if pathlib.Path(model).is_dir():
        return Directory(model)
    if pathlib.Path(model).read_bytes()[:4] == b"GGUF":
        import gguf_to_tokenizers
        return gguf_to_tokenizers.load(model)
    import vendor_tokenizers
    return vendor_tokenizers.load(model)


def run(binary: str, model: str, texts: list[bytes], parse: bool,
        show: bool) -> list[tuple[list[int], str]]:
    records = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    done = subprocess.run([binary, model, "0", str(int(parse)), str(int(show))], input=records,
                          stdout=subprocess.PIPE, check=True)
    out, offset = [], 0
    for _ in texts:
        count, = struct.unpack_from("<I", done.stdout, offset)
        ids = list(struct.unpack_from(f"<{count}i", done.stdout, offset + 4))
        offset += 4 + 4 * count
        size, = struct.unpack_from("<I", done.stdout, offset)
        out.append((ids, done.stdout[offset + 4:offset + 4 + size].decode()))
        offset += 4 + size
    return out


def show(number: int, parse: bool, text: str, ours: list[int], theirs: list[int]) -> None:
    place = next((k for k, (a, b) in enumerate(zip(ours, theirs)) if a != b), -1)
    print(f"string {number}, parse_special={parse}: {text[:200]!r}\n"
          f"  from token {place}: ours {ours[place:place + 12]}\n"
          f"  reference {theirs[place:place + 12]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--binary", required=True)
    parser.add_argument("--strings", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--found", type=int, default=0)
    parser.add_argument("--text", nargs="*", default=[])
    parser.add_argument("--long", type=int, default=1_000_000)
    parser.add_argument("--code-points", action="store_true")
    args = parser.parse_args()

    reference = open_reference(args.model)
    texts = strings(args.strings, args.first, args.found)
    for path in args.text:
        data = pathlib.Path(path).read_bytes()
        texts += [t for t in data.split(b"\n") if t] + [t for t in data.split(b"\n\n") if t]
    texts += long_strings(args.long) if args.long else []
    if args.code_points:
        texts += every_code_point()
    decodes = hasattr(reference, "decode")

    different = decoded = 0
    for parse in (False, True):
        ours = run(args.binary, args.model, texts, parse, decodes and reference.show_special)
        for start in range(0, len(texts), BATCH):
            batch = [t.decode("utf-8", errors="replace") for t in texts[start:start + BATCH]]
            for i, expected in enumerate(reference.encode(batch, parse)):
                ids, text = ours[start + i]
                if ids != expected:
                    different += 1
                    if different <= 10:
                        show(start + i, parse, batch[i], ids, expected)
                elif decodes and text != (theirs := reference.decode(ids)):
                    decoded += 1
                    if decoded <= 10:
                        print(f"string {start + i}: {ids[:20]} decodes to {text[:100]!r}, "
                              f"reference {theirs[:100]!r}")
    print(f"{args.model}: {len(texts)} strings x 2, {sum(map(len, texts))} bytes: ids of {different} "
          f"differ, texts of {decoded}" + ("" if decodes else " (not compared)"))
    return 1 if different or decoded else 0


if __name__ == "__main__":
    sys.exit(main())
