"""Makes tiny random checkpoints of models with Pixtral's tower (hf/<name>/) and their goldens
(hf/<name>.json), as make_vision_goldens.py does for others. Images have grids of patches of different
sizes; in the text, a token ends each line of their rows. tokenizer.json has these tokens.

  python3 tests/golden/make_pixtral_goldens.py [NAME...]
"""
import json
import pathlib

import torch

import make_goldens
import make_vision_goldens
from make_goldens import HERE, ODD
from make_vision_goldens import IMAGE_TOKEN, load, pixels

COUNTS = [20, 31, 2, 70]  # around three images
BREAK_TOKEN, END_TOKEN = 127, 128
SPELLINGS = {IMAGE_TOKEN: "[IMG]", BREAK_TOKEN: "[IMG_BREAK]", END_TOKEN: "[IMG_END]"}

# The fields of the published Mistral Small 3.1, which do not say that embeddings are not tied.
PUBLISHED_TEXT = dict(
    attention_dropout=0.0, head_dim=128, hidden_act="silu", hidden_size=48, initializer_range=0.02, intermediate_size=48,
    max_position_embeddings=512, model_type="mistral", num_attention_heads=3, num_hidden_layers=2, num_key_value_heads=1,
    rms_norm_eps=1e-05, rope_theta=1e9, sliding_window=None, use_cache=True, vocab_size=136)
PUBLISHED_VISION = dict(
    attention_dropout=0.0, head_dim=64, hidden_act="silu", hidden_size=64, image_size=168, initializer_range=0.02,
    intermediate_size=48, model_type="pixtral", num_attention_heads=1, num_channels=3, num_hidden_layers=2, patch_size=14,
    rope_theta=10000.0)
# Name: (prefix of the classes, text_config, vision_config, other fields, grids of rows).
MODELS = {
    # Sizes that no vector width divides; an odd number of pairs, of which the rows have one more; pixels that
    # belong to no patch of the largest image; a layer that is not used.
    "pixtral_odd": ("Llava", ODD | dict(model_type="mistral", sliding_window=37), dict(
        hidden_size=42, intermediate_size=61, num_hidden_layers=4, num_attention_heads=3, image_size=43, patch_size=5,
        hidden_act="gelu", rope_parameters=dict(rope_type="axial", rope_theta=100.0)), dict(
            vision_feature_layer=-2, vision_feature_select_strategy="full"), [[3, 7], [1, 5], [8, 2]]),
    # Squares of three by three patches; a projector with biases.
    "mistral3_odd": ("Mistral3", ODD | dict(model_type="mistral", sliding_window=37, rms_norm_eps=1e-3), dict(
        hidden_size=36, intermediate_size=37, num_hidden_layers=3, num_attention_heads=3, image_size=37, patch_size=3,
        hidden_act="silu", rope_parameters=dict(rope_type="axial", rope_theta=1000.0)), dict(
            spatial_merge_size=3, multimodal_projector_bias=True, projector_hidden_act="gelu_pytorch_tanh",
            tie_word_embeddings=False), [[2, 4], [1, 3], [4, 1]]),
    # The published heads, patches and merges.
    "mistral3_64": ("Mistral3", PUBLISHED_TEXT, PUBLISHED_VISION, dict(
        spatial_merge_size=2, multimodal_projector_bias=False, projector_hidden_act="gelu", vision_feature_layer=-1),
        [[2, 5], [1, 1], [6, 3]]),
    # Only for make_mmproj.py: without fields that GGUF does not have.
    "pixtral_gguf": ("Llava", ODD | dict(model_type="mistral", sliding_window=None), dict(
        hidden_size=36, intermediate_size=37, num_hidden_layers=3, num_attention_heads=3, image_size=43, patch_size=5,
        hidden_act="gelu"), dict(vision_feature_layer=-1, vision_feature_select_strategy="full"),
        [[3, 7], [1, 5], [8, 2]]),
    "mistral3_gguf": ("Mistral3", ODD | dict(model_type="mistral", sliding_window=None, rms_norm_eps=1e-3), dict(
        hidden_size=36, intermediate_size=37, num_hidden_layers=3, num_attention_heads=3, image_size=37, patch_size=3,
        hidden_act="silu"), dict(spatial_merge_size=2, multimodal_projector_bias=False, projector_hidden_act="gelu",
                                 vision_feature_layer=-1, tie_word_embeddings=False), [[2, 4], [1, 3], [4, 1]]),
}


def lines(height: int, width: int) -> list:
    tokens = ([IMAGE_TOKEN] * width + [BREAK_TOKEN]) * height
    return tokens[:-1] + [END_TOKEN]


class Images(make_vision_goldens.Images):
    def __init__(self, config, grids, seed: int):
        side = config.vision_config.patch_size * getattr(config, "spatial_merge_size", 1)
        self.images = []
        for i, (height, width) in enumerate(grids):
            size = [height * side, width * side]
            self.images.append(dict(shape=[1, 3] + size, grid=[height, width], size=size, seed=seed + i))
        self.values = [pixels(image["shape"], image["seed"])[0] for image in self.images]

    def features(self, count: int, dtype=torch.float32) -> dict:
        most = [max(value.shape[i] for value in self.values) for i in (1, 2)]
        padded = [torch.nn.functional.pad(v, [0, most[1] - v.shape[2], 0, most[0] - v.shape[1]])
                  for v in self.values[:count]]
        return dict(pixel_values=torch.stack(padded).to(dtype),
                    image_sizes=torch.tensor([image["size"] for image in self.images[:count]]))

    def tokens(self, image: int, rows) -> list:
        return lines(*self.images[image]["grid"])


def randomize(model, seed: int) -> None:
    make_vision_goldens.randomize(model, seed)
    norm = model.model.vision_tower.ln_pre.weight
    norm.data = 1 + 0.3 * torch.randn(norm.shape, generator=torch.Generator().manual_seed(seed + 3000))
    norm.data = norm.data.to(torch.bfloat16).to(torch.float32)


def write_tokenizer(directory: pathlib.Path, vocab: int, special: dict, letters: dict) -> None:
    """A tokenizer of printable ASCII characters, other letters and special tokens."""
    characters = {chr(c): i for i, c in enumerate(range(0x21, 0x7F), 3)} | letters
    spellings = {spelling: id for id, spelling in special.items()}
    free = [i for i in range(vocab) if i not in characters.values() and i not in special]
    spellings |= {f"<{i}>": i for i in free}
    added = [dict(id=i, content=content, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
             for content, i in sorted(spellings.items(), key=lambda item: item[1])]
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                 fuse_unk=False, vocab=characters | spellings, merges=[])
    (directory / "tokenizer.json").write_text(json.dumps(dict(
        version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=byte_level,
        post_processor=None, decoder=byte_level, model=model), separators=(",", ":")) + "\n")
    (directory / "tokenizer_config.json").write_text(json.dumps(dict(
        add_bos_token=False, tokenizer_class="PreTrainedTokenizerFast")) + "\n")


def make(name: str, place: int) -> None:
    family, text, vision, others, grids = MODELS[name]
    model = make_vision_goldens.create(family, text, vision | dict(model_type="pixtral"), others)
    randomize(model, place + 161)
    make_goldens.save(model, HERE / name, {})
    if family == "Mistral3":
        published = text if text is PUBLISHED_TEXT else None
        outer = dict(image_token_index=IMAGE_TOKEN, vision_config=vision, **others)
        make_goldens.rearrange(model, HERE / name, published, outer)
    write_tokenizer(HERE / name, text["vocab_size"], SPELLINGS, {})
    model = load(type(model), HERE / name, torch.float32)
    make_vision_goldens.write(name, place + 630, lambda seed: make_vision_goldens.golden(
        model, COUNTS, Images(model.config, grids, seed), seed))


if __name__ == "__main__":
    make_vision_goldens.make_all(MODELS, make)
