"""Makes small SentencePiece models that together have every setting that matters, and ids.txt: what
the `sentencepiece` library makes of the strings of tokenizer_strings.py with each of them.

  python3 tests/golden/make_sentencepiece_models.py

A section of ids.txt is a line "name count", then per string the FNV-1a hashes of its ids and of the
text to which they decode (0: not compared, because an id is the unknown token, for which the
library shows a mark).
"""

import collections
import io
import pathlib
import struct
import tempfile

import sentencepiece

import tokenizer_strings
from make_vendor_goldens import fnv

FOLDER = pathlib.Path(__file__).parent / "sentencepiece"
COUNT = 400
RULES = [("ﬁ", "fi"), ("Ａ", "A"), ("\u3000", " "), ("\t", " "), ("…", "..."), ("é", "e"), ("e\u0301", "e"),
         ("\u00ad", ""), ("½", " 1 2 ")]
USER = ["<tool>", "<tool><call>", "▁▁▁", "ing", "東京", "re", "\u0301"]


def corpus() -> list[str]:
    texts = [tokenizer_strings.test_string(10_000 + i).decode("utf-8", errors="replace")
             for i in range(1500)]
    counts = collections.Counter("".join(texts))
    common = {c for c, count in counts.items() if count >= 30 and c not in "\0\n"}
    return ["".join(c if c in common else " " for c in t) for t in texts] + \
        ["the cat is running and singing <tool> in the morning"] * 20


def train(kind: str, **options) -> bytes:
    out = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        if options.pop("rules", False):
            for source, target in RULES:
                rules.write(" ".join(f"{ord(c):X}" for c in source) + "\t" +
                            " ".join(f"{ord(c):X}" for c in target) + "\n")
            rules.flush()
            options["normalization_rule_tsv"] = rules.name
        else:
            options.setdefault("normalization_rule_name", "identity")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus()), model_writer=out, model_type=kind,
            vocab_size=options.pop("vocab_size", 900), character_coverage=1.0, num_threads=1,
            hard_vocab_limit=False, minloglevel=2, **options)
    return edit(out.getvalue())


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def fields(message: bytes):
    """Yields (number, wire type, value or bytes) of each field."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, 0, number()
        else:
            size = number() if tag & 7 == 2 else {1: 8, 5: 4}[tag & 7]
            yield tag >> 3, tag & 7, message[at:at + size]
            at += size


def encode(message) -> bytes:
    """The reverse of fields()."""
    out = b""
    for number, wire_type, value in message:
        out += varint(number << 3 | wire_type)
        out += varint(value) if wire_type == 0 else (varint(len(value)) if wire_type == 2 else b"") + value
    return out


def edit(model: bytes, unused: int = 0, normalizer: dict[int, int] = {}) -> bytes:
    """Makes every `unused`th ordinary piece an unused one; adds settings to normalizer_spec."""
    out, count = b"", 0
    for number, _, value in fields(model):
        if number == 1 and unused and not any(f == 3 for f, _, _ in fields(value)):
            count += 1
            if count % unused == 0:
                value += b"\x18\x05"
        if number == 3:  # drop the rules' file name
            value = encode([f for f in fields(value) if f[0] != 6] +
                           [(f, 0, v) for f, v in normalizer.items()])
        out += encode([(number, 2, value)])
    return out


def models() -> dict[str, bytes]:
    keep = {"remove_extra_whitespaces": False}
    bpe = train("bpe", byte_fallback=True, **keep)
    unigram = train("unigram", byte_fallback=True, rules=True, user_defined_symbols=USER,
                    control_symbols=["<ctl>", "[CLS]"])
    return {
        "bpe_llama": bpe,
        "bpe_unused": edit(bpe, unused=3),
        "bpe_spaces": edit(bpe, normalizer={5: 0}),
        "bpe_unknown": train("bpe", rules=True, user_defined_symbols=USER, add_dummy_prefix=False, **keep),
        "bpe_merged": train("bpe", rules=True, user_defined_symbols=USER, byte_fallback=True,
                            bos_piece="<bos>", eos_piece="<eos>", pad_id=3),
        "bpe_suffix": train("bpe", treat_whitespace_as_suffix=True, byte_fallback=True),
        "unigram": train("unigram"),
        "unigram_rules": unigram,
        "unigram_unused": edit(unigram, unused=4, normalizer={4: 0}),
        "unigram_suffix": train("unigram", treat_whitespace_as_suffix=True, rules=True),
        "unigram_nmt": train("unigram", normalization_rule_name="nmt_nfkc", vocab_size=600),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    texts = [tokenizer_strings.test_string(i).decode("utf-8", errors="replace") for i in range(COUNT)]
    lines = []
    for name, data in models().items():
        (FOLDER / f"{name}.model").write_bytes(data)
        model = sentencepiece.SentencePieceProcessor(model_proto=data)
        lines.append(f"{name} {COUNT}")
        for text in texts:
            ids = model.encode(text)
            known = model.unk_id() not in ids
            lines.append(f"{fnv(struct.pack(f'<{len(ids)}i', *ids)):08x} "
                         f"{fnv(model.decode(ids).encode()) if known else 0:08x}")
    (FOLDER / "ids.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
