"""The strings of src/tokenizer/testing/test_strings.cc, from the same tables and random draws."""

import collections
import pathlib

WORDS = ["the", "of", "and", "tokenizer", "Hello", "WORLD", "naïve", "I", "don", "running", "a",
         "Привет", "мир", "東京", "한국어", "العربية", "ελληνικά", "हिन्दी", "ภาษาไทย", "straße",
         "İstanbul", "ﬁne", "Ǆ", "ﷺ"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE", "'Ll", "’s", "'", "''s",
                "'ſ", "'x"]
SPACES = [" ", " ", " ", "  ", "    ", "\t", "\n", "\r\n", "\n\n", "\r", "\v", "\f", "\u00A0",
          "\u3000", "\u2003", "\u0085", "\u2028", "\u200B", "\u180E", "\u202F", "\uFEFF"]
EMOJI = ["👍", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "❤️", "1️⃣", "👨🏿‍🚀", "😶‍🌫️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🚀🚀🚀"]
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<|im_start|",
           "<|im_end|>\n", "<s>", "</s>", "[CLS]", "<file_sep>", "<|im_<|im_end|>"]
BEFORE = ["", "", "", " ", "ab", "7", "\n", "'", "\u0301", "東"]
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
BLOCKS = [
    (0x20, 0x7E), (0xA1, 0x24F), (0x370, 0x3FF), (0x400, 0x481), (0x531, 0x556), (0x5D0, 0x5EA),
    (0x620, 0x669), (0x904, 0x939), (0x93E, 0x94D), (0x985, 0x9B9), (0xB85, 0xBB9), (0xE01, 0xE3A),
    (0xE40, 0xE5B), (0x10D0, 0x10FA), (0x1100, 0x11FF), (0x1780, 0x17D3), (0x1E00, 0x1EFF),
    (0x2010, 0x205E), (0x2070, 0x209C), (0x2100, 0x218B), (0x2190, 0x22FF), (0x2460, 0x24FF),
    (0x2700, 0x27BF), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FEF), (0xAC00, 0xD7A3),
    (0xE000, 0xF8FF), (0xFF01, 0xFF5E), (0x1D400, 0x1D7CB), (0x1F300, 0x1F64F), (0x20000, 0x2A6D6),
    (0xE0020, 0xE007E), (0x10FFF0, 0x10FFFF)]

MASK = (1 << 64) - 1


class Random:
    """splitmix64."""

    def __init__(self, seed: int):
        self.state = seed

    def below(self, n: int) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % n

    def pick(self, table):
        return table[self.below(len(table))]


def word(random: Random) -> bytes:
    space = b" " if random.below(2) == 1 else b""
    text = random.pick(WORDS).encode()
    return space + (text.upper() if random.below(8) == 0 else text)  # bytes.upper is ASCII only


def part(random: Random) -> bytes:
    kind = random.below(12)
    if kind <= 1:
        return word(random)
    if kind == 2:
        return bytes(ord("0") + random.below(10) for _ in range(1 + random.below(9)))
    if kind <= 4:
        return random.pick(SPACES).encode()
    if kind == 5:
        return bytes(ord(random.pick(PUNCTUATION)) for _ in range(1 + random.below(4)))
    if kind == 6:
        return random.pick(CONTRACTIONS).encode()
    if kind == 7:
        low, high = random.pick(BLOCKS)
        count = 1 + random.below(8)
        return "".join(chr(low + random.below(high - low + 1)) for _ in range(count)).encode()
    if kind == 8:
        return random.pick(EMOJI).encode()
    if kind == 9:
        return "".join(chr(0x300 + random.below(0x70)) for _ in range(1 + random.below(4))).encode()
    if kind == 10:
        if random.below(4) == 0:
            return bytes(random.below(256) for _ in range(1 + random.below(8)))
        return random.pick(SPECIAL).encode()
    if random.below(8) == 0:
        unit = random.pick(SPACES) if random.below(2) == 0 else random.pick(WORDS)
        return unit.encode() * (2 + random.below(40))
    return b""


def test_string(index: int) -> bytes:
    """String number `index`: bytes, not always UTF-8."""
    random = Random(index)
    return b"".join(part(random) for _ in range(1 + random.below(16)))


class Varied:
    """make(index): hard strings, pieces of a corpus, babble and all of Unicode's characters in
    turn."""

    CONTEXT = 3

    def __init__(self, folder=pathlib.Path(__file__).parent / "strings"):
        self._corpus = (folder / "corpus.txt").read_bytes()
        circle = self._corpus + self._corpus[:self.CONTEXT]
        self._followers = collections.defaultdict(bytearray)
        for i in range(len(self._corpus)):
            self._followers[circle[i:i + self.CONTEXT]].append(circle[i + self.CONTEXT])
        self._special_tokens = (folder / "special_tokens.txt").read_text().splitlines()
        bounds = [int(n, 16) for n in (folder / "characters.txt").read_text().split()]
        self._characters = [c for low, high in zip(bounds[::2], bounds[1::2])
                            for c in range(low, high + 1)]

    def make(self, index: int) -> bytes:
        random = Random(index)
        kind = index % 4
        if kind == 0:
            return test_string(index)
        if kind == 1:
            return self._pieces(random)
        return self._babble(random) if kind == 2 else self._some_characters(random, index // 4)

    def _piece(self, random: Random) -> bytes:
        begin = random.below(len(self._corpus))
        end = begin + 1 + random.below(600 if random.below(8) == 0 else 120)
        end = min(end, len(self._corpus))

        def inside(i: int) -> bool:
            return i < len(self._corpus) and self._corpus[i] & 0xC0 == 0x80
        while inside(begin):
            begin += 1
        while inside(end):
            end += 1
        return self._corpus[begin:end]

    def _pieces(self, random: Random) -> bytes:
        out = self._piece(random)
        while random.below(3) == 0:
            table = self._special_tokens if random.below(2) == 0 else SPACES
            out += random.pick(table).encode()
            out += self._piece(random)
        return out

    def _babble(self, random: Random) -> bytes:
        begin = random.below(len(self._corpus) - self.CONTEXT)
        out = bytearray(self._corpus[begin:begin + self.CONTEXT])
        for _ in range(1 + random.below(200)):
            out.append(random.pick(self._followers[bytes(out[-self.CONTEXT:])]))
        return bytes(out)

    def _some_characters(self, random: Random, number: int) -> bytes:
        out = ""
        for i in range(6 * number, 6 * number + 6):
            out += random.pick(BEFORE) + chr(self._characters[i % len(self._characters)])
            if random.below(2) == 0:
                out += chr(random.pick(self._characters))
        return out.encode()
