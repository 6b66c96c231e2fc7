"""Vendors' own tokenizers, as references: each has encode(texts, parse_special), which returns
lists of ids, decode(ids), and show_special, which says whether decode shows special tokens.

The file's name selects one:
  tekken*.json                            mistral-common
  *.model, *.model.v3 (a protobuf)        sentencepiece
  *.tiktoken                              dashscope
  llama3/tokenizer.model, llama4/...      llama-models (its code: files of the package)
"""

import importlib
import json
import pathlib
import re


class SentencePiece:
    show_special = False

    def __init__(self, path: str):
        import sentencepiece
        self._model = sentencepiece.SentencePieceProcessor(model_file=path)
        ids = range(self._model.get_piece_size())
        self._special = {self._model.id_to_piece(i): i for i in ids
                         if self._model.is_control(i) or self._model.is_unknown(i)}
        names = sorted(self._special, key=len, reverse=True)
        self._pattern = re.compile("(" + "|".join(map(re.escape, names)) + ")")

    def _encode(self, text: str) -> list[int]:
        ids = []
        for part in self._pattern.split(text):
            ids += [self._special[part]] if part in self._special else self._model.encode(part)
        return ids

    def encode(self, texts: list[str], parse_special: bool) -> list[list[int]]:
        return [self._encode(t) for t in texts] if parse_special else self._model.encode(texts)

    def decode(self, ids: list[int]) -> str:
        # Unknown tokens are special and have no text; the library would show " ⁇ ".
        return self._model.decode([i for i in ids if not self._model.is_unknown(i)])


class Tekken:
    show_special = False

    def __init__(self, path: str):
        import tiktoken
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        self._vendor = Tekkenizer.from_file(path)
        # The vendor's code never looks for special tokens in text; the library below it does.
        count = self._vendor.num_special_tokens
        ranks = {token: rank + count for token, rank in self._vendor._tekken_token2id_nospecial.items()}
        pattern = json.loads(pathlib.Path(path).read_text())["config"]["pattern"]
        self._special = tiktoken.Encoding("tekken", pat_str=pattern, mergeable_ranks=ranks,
                                          special_tokens=dict(self._vendor._special_tokens_reverse_vocab))

    def encode(self, texts: list[str], parse_special: bool) -> list[list[int]]:
        if parse_special:
            return [self._special.encode(t, allowed_special="all") for t in texts]
        return [self._vendor.encode(t, bos=False, eos=False) for t in texts]

    def decode(self, ids: list[int]) -> str:
        return self._vendor.decode(ids)


class Qwen:
    show_special = True

    def __init__(self, path: str):
        from dashscope.tokenizers.qwen_tokenizer import QwenTokenizer
        self._vendor = QwenTokenizer(path)

    def encode(self, texts: list[str], parse_special: bool) -> list[list[int]]:
        allowed = "all" if parse_special else set()
        return [self._vendor.encode(t, allowed_special=allowed) for t in texts]

    def decode(self, ids: list[int]) -> str:
        return self._vendor.decode(ids)


class Llama:
    show_special = True

    def __init__(self, path: str):
        version = pathlib.Path(path).parent.name
        module = importlib.import_module(f"llama_models.{version}.tokenizer")
        self._vendor = module.Tokenizer(pathlib.Path(path))

    def encode(self, texts: list[str], parse_special: bool) -> list[list[int]]:
        allowed = "all" if parse_special else set()
        return [self._vendor.encode(t, bos=False, eos=False, allowed_special=allowed) for t in texts]

    def decode(self, ids: list[int]) -> str:
        return self._vendor.decode(ids)


def load(path: str):
    name = pathlib.Path(path).name
    if name.startswith("tekken"):
        return Tekken(path)
    if name.endswith(".tiktoken"):
        return Qwen(path)
    return SentencePiece(path) if pathlib.Path(path).read_bytes()[:1] == b"\n" else Llama(path)
