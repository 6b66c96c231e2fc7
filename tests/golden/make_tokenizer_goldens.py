"""Makes tokenizer_ids.txt: what reference tokenizers make of the strings of tokenizer_strings.py.

  python3 tests/golden/make_tokenizer_goldens.py --model SmolLM2-135M-Instruct.Q4_1.gguf \
      --vocabularies llama.cpp/models --llama llama_ref/llama_vocab_ids

The reference is Hugging Face `tokenizers` (requirements.txt) if the pre-tokenizer of the model's
own tokenizer.json is known (gguf_to_tokenizers.py), and llama.cpp (llama_vocab_ids.cc) for
vocabularies that have no reference ids. A section is a line "name reference parse_special count",
then the FNV-1a hash of each string's ids (32-bit, little-endian), without added special tokens.
"""

import argparse
import pathlib
import struct
import subprocess

import gguf_to_tokenizers
import tokenizer_strings

HF = {"bert-bge": 250, "falcon": 250, "llama-bpe": 250, "qwen2": 250, "starcoder": 250}
LLAMA = {"aquila": 400, "baichuan": 400, "gpt-neox": 400, "nomic-bert-moe": 400, "gemma-4": 250,
         "llama-spm": 250, "deepseek-coder": 250}


def fnv(ids: list[int]) -> int:
    value = 0x811C9DC5
    for byte in struct.pack(f"<{len(ids)}i", *ids):
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def llama(binary: str, model: str, texts: list[str], parse: bool) -> list[list[int]]:
    records = b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in texts)
    out = subprocess.run([binary, model, "0", str(int(parse))], input=records,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    ids, offset = [], 0
    for _ in texts:
        count, = struct.unpack_from("<I", out, offset)
        ids.append(list(struct.unpack_from(f"<{count}i", out, offset + 4)))
        offset += 4 + 4 * count
    return ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--vocabularies", required=True)
    parser.add_argument("--llama", required=True)
    args = parser.parse_args()
    lines = []

    def section(name: str, reference: str, count: int, encode) -> None:
        texts = [tokenizer_strings.test_string(i).decode("utf-8", errors="replace")
                 for i in range(count)]
        for parse in (False, True):
            lines.append(f"{name} {reference} {int(parse)} {count}")
            hashes = [f"{fnv(ids):08x}" for ids in encode(texts, parse)]
            lines.extend(" ".join(hashes[i:i + 11]) for i in range(0, count, 11))

    section("smollm2", "tokenizers", 4000, gguf_to_tokenizers.load(args.model).encode)
    for name, count in HF.items():
        path = f"{args.vocabularies}/ggml-vocab-{name}.gguf"
        section(name, "tokenizers", count, gguf_to_tokenizers.load(path).encode)
    for name, count in LLAMA.items():
        path = f"{args.vocabularies}/ggml-vocab-{name}.gguf"
        section(name, "llama.cpp", count, lambda t, p: llama(args.llama, path, t, p))
    target = pathlib.Path(__file__).with_name("tokenizer_ids.txt")
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
