"""Makes tiny random checkpoints of MiniCPM-V (hf/<name>/) and their goldens (hf/<name>.json), as
make_vision_goldens.py does for others. Images have grids of patches of different sizes; in the text, tokens
surround their rows and those of their tiles. tokenizer.json has these tokens.

  python3 tests/golden/make_minicpm_goldens.py [NAME...]
"""
import copy

import torch
import transformers

import make_goldens
import make_pixtral_goldens
import make_vision_goldens
from make_goldens import HERE, ODD, rope
from make_vision_goldens import IMAGE_TOKEN, load, pixels

COUNTS = [20, 31, 2, 70]  # around three images
NUMBER, NUMBER_END, BEGIN, END, TILE, TILE_END, LINE = range(127, 134)
SPELLINGS = {IMAGE_TOKEN: "<|image_pad|>", NUMBER: "<image_id>", NUMBER_END: "</image_id>", BEGIN: "<image>",
             END: "</image>", TILE: "<slice>", TILE_END: "</slice>"}
ZERO = 18  # the digit, as make_pixtral_goldens.py has it
LETTERS = {"\u010a": LINE}  # a line break, as byte-level BPE spells it

# Name: (text_config, vision_config, other fields, grids of patches).
MODELS = {
    # Sizes that no vector width divides; images with more and with fewer patches than there are positions,
    # in one direction or both.
    "minicpm_v_odd": (ODD | dict(model_type="qwen3", vocab_size=137), dict(
        hidden_size=42, intermediate_size=61, num_hidden_layers=4, num_attention_heads=3, image_size=35, patch_size=5,
        layer_norm_eps=1e-3), dict(insert_layer_id=1, image_size=41), [[8, 12], [4, 16], [12, 4]]),
    # Without the merger in the tower, whose weights are there all the same.
    "minicpm_v_4x": (ODD | dict(model_type="qwen3", vocab_size=137, num_hidden_layers=2, tie_word_embeddings=True), dict(
        hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=1, image_size=42, patch_size=7),
        dict(insert_layer_id=0, image_size=42, downsample_mode="4x"), [[6, 10], [2, 4], [4, 2]]),
    # The published text model's layers, whose positions of images are those of texts.
    "minicpm_v_35": (ODD | dict(
        model_type="qwen3_5_text", vocab_size=137, layer_types=["linear_attention", "full_attention", "linear_attention"],
        linear_num_key_heads=3, linear_num_value_heads=6, linear_key_head_dim=11, linear_value_head_dim=13,
        linear_conv_kernel_dim=3, rope_parameters=rope(1000.0, partial_rotary_factor=3 / 7, mrope_section=[1, 1, 1])),
        dict(hidden_size=36, intermediate_size=37, num_hidden_layers=3, num_attention_heads=2, image_size=24, patch_size=3),
        dict(insert_layer_id=0, image_size=24), [[4, 8], [12, 4], [8, 8]]),
}


def number(image: int) -> list:
    """The number of an image in a text."""
    return [NUMBER, ZERO + image, NUMBER_END]


def shown(rows, columns: int) -> list:
    """An image and its tiles, which have so many rows; `columns` tiles are beside each other."""
    tokens = [BEGIN] + [IMAGE_TOKEN] * rows[0] + [END]
    for i, count in enumerate(rows[1:]):
        tokens += [LINE] * (i > 0 and i % columns == 0) + [TILE] + [IMAGE_TOKEN] * count + [TILE_END]
    return tokens


class Images(make_vision_goldens.Images):
    def __init__(self, config, grids, seed: int):
        patch = config.vision_config.patch_size
        self.images = [dict(shape=[height * width, 3, patch, patch], grid=[height, width],
                            size=[height * patch, width * patch], seed=seed + i)
                       for i, (height, width) in enumerate(grids)]
        self.values = [pixels(image["shape"], image["seed"]) for image in self.images]

    def features(self, count: int, dtype=torch.float32) -> dict:
        side_by_side = torch.cat(self.values[:count]).permute(1, 2, 0, 3).flatten(2)
        return dict(pixel_values=side_by_side[None].to(dtype),
                    target_sizes=torch.tensor([image["grid"] for image in self.images[:count]]))

    def tokens(self, image: int, rows) -> list:
        return number(image) + shown([len(rows)], 0)


def randomize(model, seed: int) -> None:
    make_vision_goldens.randomize(model, seed)
    if model.config.text_config.model_type == "qwen3_5_text":
        make_goldens.randomize(model.model.language_model, seed)
    generator = torch.Generator().manual_seed(seed + 4000)
    for name, parameter in model.named_parameters():
        if "merger" in name and parameter.dim() == 2:
            parameter.data = torch.randn(parameter.shape, generator=generator) / parameter.shape[1] ** 0.5
            parameter.data = parameter.data.to(torch.bfloat16).to(torch.float32)


def make(name: str, place: int) -> None:
    text, vision, others, grids = MODELS[name]
    config = transformers.MiniCPMV4_6Config(
        text_config=copy.deepcopy(text), vision_config=copy.deepcopy(vision), image_token_id=IMAGE_TOKEN,
        attn_implementation="eager", **copy.deepcopy(others))
    model = transformers.MiniCPMV4_6ForConditionalGeneration(config).to(torch.float32).eval()
    randomize(model, place + 191)
    make_goldens.save(model, HERE / name, {})
    make_pixtral_goldens.write_tokenizer(HERE / name, text["vocab_size"], SPELLINGS, LETTERS)
    model = load(type(model), HERE / name, torch.float32)
    make_vision_goldens.write(name, place + 730, lambda seed: make_vision_goldens.golden(
        model, COUNTS, Images(model.config, grids, seed), seed))


if __name__ == "__main__":
    make_vision_goldens.make_all(MODELS, make)
