"""Writes vendor_ids.txt: what vendors' own tokenizers make of the strings of tokenizer_strings.py.

  python3 tests/golden/make_vendor_goldens.py REFS    (the folder that scripts/setup-test-refs prints)

Needs dashscope, llama-models, mistral-common with sentencepiece, tiktoken and tokenizers. A section is
a line "path count", then for each string one FNV-1a hash over its ids without and with special tokens
found in the text, each followed by -1, and over the text that the former decode to.
"""

import pathlib
import struct
import sys

import compare_tokenizers
import tokenizer_strings

HERE = pathlib.Path(__file__).parent
COUNT = 600
PATHS = ["vocabularies/qwen.tiktoken", "vocabularies/llama3/tokenizer.model",
         "vocabularies/llama4/tokenizer.model", "vocabularies/mistral/tekken_240911.json",
         "vocabularies/mistral/tokenizer.model.v1",
         "vocabularies/mistral/mistral_instruct_tokenizer_241114.model.v7", "vocabularies/deepseek",
         "all-MiniLM-L6-v2"]


def fnv(data: bytes) -> int:
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def main() -> None:
    texts = [tokenizer_strings.test_string(i).decode("utf-8", errors="replace") for i in range(COUNT)]
    lines = []
    for path in PATHS:
        reference = compare_tokenizers.open_reference(str(pathlib.Path(sys.argv[1], path)))
        plain, special = reference.encode(texts, False), reference.encode(texts, True)
        lines.append(f"{path} {COUNT}")
        for a, b in zip(plain, special):
            ids = [*a, -1, *b, -1]
            lines.append(f"{fnv(struct.pack(f'<{len(ids)}i', *ids) + reference.decode(a).encode()):08x}")
    (HERE / "vendor_ids.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
