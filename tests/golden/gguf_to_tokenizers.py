"""Makes Hugging Face `tokenizers` objects from the vocabulary in a GGUF file.

The pre-tokenizers are those of the models' tokenizer.json; GGUF files only name them.
"""

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece

CONTROL, USER_DEFINED = 3, 4


def _split(pattern: str):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def _bytes():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def _cl100k(number: str):
    return _split(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + number +
                  r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def _gpt2():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _pre_tokenizer(name: str):
    sequence = pre_tokenizers.Sequence
    return {
        "gpt-2": lambda: _gpt2(),
        "mpt": lambda: _gpt2(),
        "smollm": lambda: sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()]),
        "starcoder": lambda: sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()]),
        "refact": lambda: sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()]),
        "command-r": lambda: sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()]),
        "falcon": lambda: sequence([pre_tokenizers.Punctuation("contiguous"), _gpt2(),
                                    _split("[0-9][0-9][0-9]")]),
        "llama-bpe": lambda: sequence([_cl100k(r"\p{N}{1,3}"), _bytes()]),
        "qwen2": lambda: sequence([_cl100k(r"\p{N}"), _bytes()]),
    }[name]()


NFC = {"qwen2", "mpt", "command-r"}
IGNORE_MERGES = {"llama-bpe"}


class Reference:
    def __init__(self, plain: Tokenizer, special: Tokenizer):
        self._plain, self._special = plain, special

    def encode(self, texts: list[str], parse_special: bool) -> list[list[int]]:
        tokenizer = self._special if parse_special else self._plain
        return [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]


def load(path: str) -> Reference:
    fields = gguf.GGUFReader(path).fields

    def get(key):
        return fields["tokenizer.ggml." + key].contents()

    tokens, types = get("tokens"), get("token_type")

    def make(kinds) -> Tokenizer:
        if get("model") == "bert":
            # In GGUF words begin with ▁; originally the other tokens begin with ##.
            vocab = {}
            for i, token in enumerate(tokens):
                if types[i] == CONTROL:
                    vocab[token] = i
                else:
                    vocab[token[1:] if token.startswith("▁") else "##" + token] = i
            tokenizer = Tokenizer(WordPiece(vocab, unk_token="[UNK]"))
            tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        else:
            name = get("pre")
            vocab = {token: i for i, token in enumerate(tokens)}
            merges = [tuple(m.split(" ", 1)) for m in get("merges")]
            tokenizer = Tokenizer(BPE(vocab, merges, ignore_merges=name in IGNORE_MERGES))
            tokenizer.pre_tokenizer = _pre_tokenizer(name)
            if name in NFC:
                tokenizer.normalizer = normalizers.NFC()
        for i, token in enumerate(tokens):
            if types[i] in kinds:
                tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
                assert tokenizer.token_to_id(token) == i
        return tokenizer

    return Reference(make({USER_DEFINED}), make({CONTROL, USER_DEFINED}))
