"""Makes small tokenizer.json files that together use every component, and ids.txt: what the
`tokenizers` library makes of the strings of tokenizer_strings.py with each of them.

  python3 tests/golden/make_tokenizer_json.py

A section of ids.txt is a line "name count", then per string three FNV-1a hashes: of its ids with
special tokens found and added, of its ids without either (0: not compared), and of the text to
which the former decode (special tokens skipped).
"""

import collections
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import make_tokenizer_goldens
import tokenizer_strings

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "tokenizer_json"
COUNT = 220
SPECIAL = ["<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>"]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ESCAPED = "▁"


def corpus() -> list[str]:
    return [tokenizer_strings.test_string(10_000 + i).decode("utf-8", errors="replace") for i in range(400)]


def bytes_split(*before):
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train_bpe(pre, normalizer=None, size=420, alphabet=True, **options) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre
    if normalizer:
        tokenizer.normalizer = normalizer
    names = {"continuing_subword_prefix": "continuing_subword_prefix", "end_of_word_suffix": "end_of_word_suffix"}
    extra = {names[k]: v for k, v in options.items() if k in names}
    initial = sorted(pre_tokenizers.ByteLevel.alphabet()) if alphabet else []
    if options.get("byte_fallback"):
        initial = []
    special = list(SPECIAL) + ([f"<0x{b:02X}>" for b in range(256)] if options.get("byte_fallback") else [])
    trainer = trainers.BpeTrainer(vocab_size=size + len(special), special_tokens=special, initial_alphabet=initial,
                                  limit_alphabet=300, show_progress=False, **extra)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def without_byte_names(tokenizer: Tokenizer) -> Tokenizer:
    """Keeps byte tokens in the vocabulary but removes them from the added tokens."""
    import json
    value = json.loads(tokenizer.to_str())
    value["added_tokens"] = [t for t in value["added_tokens"] if not t["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(value))


def bert_like(tokenizer: Tokenizer) -> None:
    tokenizer.post_processor = processors.BertProcessing(("</s>", tokenizer.token_to_id("</s>")),
                                                         ("<s>", tokenizer.token_to_id("<s>")))


def wordpiece(normalizer, pre) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=20))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=SPECIAL, limit_alphabet=250, show_progress=False))
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return tokenizer


def unigram(normalizer, pre, decoder, byte_fallback=False) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, pre, decoder
    # The trainer keeps every character, so leave out the rare ones.
    counts = collections.Counter("".join(corpus()))
    common = {c for c, _ in counts.most_common(250)}
    texts = ["".join(c for c in text if c in common) for text in corpus() if not any(s in text for s in SPECIAL)]
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(
        vocab_size=700, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False))
    if byte_fallback:
        import json
        value = json.loads(tokenizer.to_str())
        value["model"]["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in range(256)]
        value["model"]["byte_fallback"] = True
        tokenizer = Tokenizer.from_str(json.dumps(value))
    return tokenizer


def tokenizers_by_name():
    metaspace = pre_tokenizers.Metaspace
    level = pre_tokenizers.ByteLevel

    t = train_bpe(bytes_split(pre_tokenizers.Split(Regex(LLAMA3), "isolated")), ignore_merges=True)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B:1", special_tokens=[("<s>", t.token_to_id("<s>"))])])
    yield "bpe_llama3", t

    t = train_bpe(bytes_split(pre_tokenizers.Split(Regex(KIMI), "isolated")), normalizers.NFC())
    t.decoder = decoders.ByteLevel()
    yield "bpe_intersection", t

    t = train_bpe(level(add_prefix_space=True))
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True, add_prefix_space=True)
    yield "bpe_roberta", t

    # ByteLevel before other steps, which then see its alphabet.
    t = train_bpe(pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), level(add_prefix_space=False),
                                           pre_tokenizers.Digits(individual_digits=True)]))
    t.decoder = decoders.ByteLevel()
    yield "bpe_falcon", t

    t = train_bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(False), level(add_prefix_space=False)]),
                  normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), unk_token="<unk>")
    t.decoder = decoders.ByteLevel()
    t.add_tokens([AddedToken("hello", normalized=True), AddedToken("tokenizer", single_word=True),
                  AddedToken("<file_sep>", lstrip=True, rstrip=True), AddedToken("WORLD", normalized=False)])
    yield "bpe_added", t

    t = train_bpe(metaspace("▁", "never", False), normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), alphabet=False, byte_fallback=True, fuse_unk=True,
        unk_token="<unk>")
    t.pre_tokenizer = None
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    yield "bpe_llama2", without_byte_names(t)

    t = train_bpe(pre_tokenizers.WhitespaceSplit(), normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Strip(True, False)]), alphabet=False,
        unk_token="<unk>", fuse_unk=False, end_of_word_suffix="</w>")
    t.decoder = decoders.Sequence([decoders.Replace("</w>", " ")])
    yield "bpe_suffix", t

    t = train_bpe(pre_tokenizers.Whitespace(), alphabet=False, unk_token="<unk>", fuse_unk=True,
                  continuing_subword_prefix="@@")
    yield "bpe_prefix", t

    t = train_bpe(None or metaspace("▁", "first", True), normalizers.ByteLevel(), alphabet=True)
    yield "bpe_normalized_bytes", t

    yield "unigram_first", unigram(
        normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]),
        metaspace("▁", "first"), decoders.Metaspace("▁", "first"))
    t = unigram(normalizers.NFKD(), pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit("!"), metaspace("▁", "always")]),
                decoders.Sequence([decoders.Metaspace("▁", "always"), decoders.ByteFallback()]), byte_fallback=True)
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    yield "unigram_bytes", t

    t = wordpiece(normalizers.BertNormalizer(True, True, None, True), pre_tokenizers.BertPreTokenizer())
    bert_like(t)
    yield "wordpiece_bert", t
    yield "wordpiece_cased", wordpiece(normalizers.BertNormalizer(True, False, True, False),
                                       pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                                                pre_tokenizers.Punctuation("removed")]))

    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            t = train_bpe(bytes_split(pre_tokenizers.Split(Regex(r"[\s\p{P}]|(?=\d)"), behavior, invert)), size=330)
            t.decoder = decoders.ByteLevel()
            if behavior in ("removed", "isolated") or not invert:
                yield f"split_{behavior}{'_inverted' if invert else ''}", t


def fnv_text(text: str) -> int:
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    texts = [tokenizer_strings.test_string(i).decode("utf-8", errors="replace") for i in range(COUNT)]
    lines = []
    for name, tokenizer in tokenizers_by_name():
        (FOLDER / f"{name}.json").write_text(tokenizer.to_str(pretty=False) + "\n")
        tokenizer = Tokenizer.from_file(str(FOLDER / f"{name}.json"))
        lines.append(f"{name} {COUNT}")
        plain = Tokenizer.from_file(str(FOLDER / f"{name}.json"))
        plain.encode_special_tokens = True
        for text in texts:
            ids = tokenizer.encode(text).ids
            bare = make_tokenizer_goldens.fnv(plain.encode(text, add_special_tokens=False).ids)
            # In the library, a Unigram model finds special tokens' names in any text.
            if name.startswith("unigram") and any(s in text for s in SPECIAL):
                bare = 0
            lines.append(f"{make_tokenizer_goldens.fnv(ids):08x} {bare:08x} "
                         f"{fnv_text(tokenizer.decode(ids)):08x}")
        print(name, tokenizer.get_vocab_size())
    (FOLDER / "ids.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
