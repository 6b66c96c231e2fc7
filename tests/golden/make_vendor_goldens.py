"""Writes vendor_ids.txt: what vendors' own tokenizers make of the strings of tokenizer_strings.py.

  python3 tests/golden/make_vendor_goldens.py REFS    (the folder that scripts/setup-test-refs prints)

Needs dashscope, llama-models, mistral-common with sentencepiece, tiktoken and tokenizers, in the
versions of the file's first line. A section is a line "path shows_special", then per block of 500
strings an FNV-1a hash. It covers, for each string, the ids without and with special tokens found in
the text, each followed by -1 and by the text to which they decode.
"""

import importlib.metadata
import pathlib
import struct
import sys

import compare_tokenizers
import tokenizer_strings

HERE = pathlib.Path(__file__).parent
BLOCK, BLOCKS = 500, 200
PACKAGES = ["dashscope", "llama-models", "mistral-common", "sentencepiece", "tiktoken", "tokenizers"]
PATHS = ["vocabularies/qwen.tiktoken", "vocabularies/llama3/tokenizer.model",
         "vocabularies/llama4/tokenizer.model", "vocabularies/mistral/tokenizer.model.v1",
         "vocabularies/mistral/mistral_instruct_tokenizer_240216.model.v2",
         "vocabularies/mistral/mistral_instruct_tokenizer_240323.model.v3",
         "vocabularies/mistral/mistral_instruct_tokenizer_241114.model.v7",
         "vocabularies/mistral/tekken_240718.json", "vocabularies/mistral/tekken_240911.json",
         "vocabularies/deepseek", "all-MiniLM-L6-v2"]


def fnv(data: bytes) -> int:
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def block_hash(reference, texts: list[str]) -> str:
    answers = zip(reference.encode(texts, False), reference.encode(texts, True))
    data = b"".join(struct.pack(f"<{len(ids) + 1}i", *ids, -1) + reference.decode(ids).encode()
                    for pair in answers for ids in pair)
    return f"{fnv(data):08x}"


def main() -> None:
    varied = tokenizer_strings.Varied()
    texts = [varied.make(i).decode("utf-8", errors="replace") for i in range(BLOCK * BLOCKS)]
    lines = ["# " + ", ".join(f"{p} {importlib.metadata.version(p)}" for p in PACKAGES)]
    for path in PATHS:
        reference = compare_tokenizers.open_reference(str(pathlib.Path(sys.argv[1], path)))
        lines.append(f"{path} {int(reference.show_special)}")
        hashes = [block_hash(reference, texts[i:i + BLOCK]) for i in range(0, len(texts), BLOCK)]
        lines.extend(" ".join(hashes[i:i + 10]) for i in range(0, BLOCKS, 10))
        print(lines[-BLOCKS // 10 - 1], flush=True)
    (HERE / "vendor_ids.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
