"""Makes tiny random checkpoints of Qwen's models that see (hf/<name>/) and their goldens
(hf/<name>.json), as make_vision_goldens.py does for others. Images have grids of patches of different
sizes, and positions have three dimensions, which the goldens list.

  python3 tests/golden/make_qwen_vl_goldens.py [NAME...]
"""
import copy
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

import make_goldens
import make_vision_goldens
from make_goldens import HERE, ODD, ODD_HEADS, WIDE, WIDE_HEADS, rope
from make_vision_goldens import IMAGE_TOKEN, load, pixels

COUNTS = [20, 31, 2, 70]  # around three images

TEXT = dict(bos_token_id=1, eos_token_id=1)
TEXT_128 = WIDE_HEADS | TEXT | dict(
    num_hidden_layers=1, intermediate_size=32, rope_parameters=rope(1e6, mrope_section=[16, 24, 24]))
VISION_80 = dict(depth=2, num_heads=1, patch_size=5)
# Name: (prefix of the classes, text_config, vision_config, other fields, grids of patches).
MODELS = {
    # Sizes that no vector width divides; sections of one and two pairs; a window.
    "qwen2_vl_odd": ("Qwen2VL", ODD_HEADS | TEXT | dict(
        rope_parameters=rope(1000.0, mrope_section=[1, 2, 2]), use_sliding_window=True, sliding_window=37,
        max_window_layers=1), dict(
            depth=3, embed_dim=36, hidden_size=60, num_heads=3, mlp_ratio=3, patch_size=3), dict(),
        [[4, 6], [2, 16], [10, 4]]),
    # The released models' heads and sections.
    "qwen2_vl_80": ("Qwen2VL", TEXT_128, VISION_80 | dict(embed_dim=80, hidden_size=128, mlp_ratio=1),
                    dict(tie_word_embeddings=True), [[8, 4], [2, 2], [6, 12]]),
    # Windows of 2 x 2 merged patches, which no image's grid is a multiple of in both directions.
    "qwen2_5_vl_odd": ("Qwen2_5_VL", ODD_HEADS | TEXT | dict(rope_parameters=rope(1000.0, mrope_section=[1, 2, 2])), dict(
        depth=4, hidden_size=36, out_hidden_size=60, num_heads=3, intermediate_size=37, patch_size=3, window_size=12,
        fullatt_block_indexes=[1, 3]), dict(), [[6, 10], [2, 16], [8, 6]]),
    # And windows of 4 x 4 merged patches.
    "qwen2_5_vl_80": ("Qwen2_5_VL", TEXT_128, VISION_80 | dict(
        hidden_size=80, out_hidden_size=128, intermediate_size=84, window_size=40, fullatt_block_indexes=[1]),
        dict(tie_word_embeddings=True), [[8, 8], [10, 12], [2, 18]]),
    # Pairs that rotate by time between those of the other dimensions and behind them; grids both finer
    # and coarser than that of the learned positions; two features for the first layers.
    "qwen3_vl_odd": ("Qwen3VL", ODD | TEXT | dict(rope_parameters=rope(
        1000.0, mrope_section=[5, 1, 1], mrope_interleaved=True), attention_bias=True), dict(
            depth=4, hidden_size=36, out_hidden_size=42, num_heads=3, intermediate_size=37, patch_size=3,
            num_position_embeddings=25, deepstack_visual_indexes=[0, 2]), dict(), [[4, 6], [2, 16], [10, 4]]),
    # The released models' heads and sections.
    "qwen3_vl_64": ("Qwen3VL", WIDE | TEXT | dict(
        hidden_size=32, num_attention_heads=1, intermediate_size=32,
        rope_parameters=rope(5e6, mrope_section=[24, 20, 20], mrope_interleaved=True)), dict(
            depth=2, hidden_size=64, out_hidden_size=32, num_heads=1, intermediate_size=48, patch_size=4,
            num_position_embeddings=49, deepstack_visual_indexes=[0]),
        dict(tie_word_embeddings=True), [[8, 4], [2, 2], [6, 12]]),
    # A layer without experts.
    "qwen3_vl_moe_odd": ("Qwen3VLMoe", ODD | TEXT | dict(
        rope_parameters=rope(1000.0, mrope_section=[3, 2, 2], mrope_interleaved=True), num_experts=7,
        num_experts_per_tok=3, moe_intermediate_size=37, mlp_only_layers=[1]), dict(
            depth=3, hidden_size=24, out_hidden_size=42, num_heads=2, intermediate_size=37, patch_size=3,
            num_position_embeddings=16, deepstack_visual_indexes=[0, 1]), dict(), [[4, 6], [2, 16], [10, 4]]),
    # The released models' numbers of experts, heads and sections.
    "qwen3_vl_moe_128": ("Qwen3VLMoe", WIDE | TEXT | dict(
        hidden_size=32, num_attention_heads=1, intermediate_size=32, num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=8, rope_parameters=rope(5e6, mrope_section=[24, 20, 20], mrope_interleaved=True)), dict(
            depth=1, hidden_size=32, out_hidden_size=32, num_heads=1, intermediate_size=48, patch_size=4,
            num_position_embeddings=49, deepstack_visual_indexes=[0]), dict(), [[8, 4], [2, 2], [6, 12]]),
    # Only for make_mmproj.py: without the windows of the text model, for which GGUF has no field.
    "qwen2_vl_gguf": ("Qwen2VL", ODD_HEADS | TEXT | dict(rope_parameters=rope(1000.0, mrope_section=[1, 2, 2])), dict(
        depth=3, embed_dim=36, hidden_size=60, num_heads=3, mlp_ratio=3, patch_size=3), dict(),
        [[4, 6], [2, 16], [10, 4]]),
    # Gated delta nets in two layers; the tower without features for the first layers.
    "qwen35_vl_odd": ("Qwen3_5", ODD | TEXT | dict(
        layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=11, linear_value_head_dim=13,
        rope_parameters=rope(1000.0, mrope_section=[4, 1, 1], partial_rotary_factor=6 / 7)), dict(
            depth=3, hidden_size=36, out_hidden_size=42, num_heads=3, intermediate_size=37, patch_size=3,
            num_position_embeddings=25), dict(), [[4, 6], [2, 16], [10, 4]]),
    # The released models' sections.
    "qwen35_vl_64": ("Qwen3_5", WIDE | TEXT | dict(
        hidden_size=32, head_dim=256, num_attention_heads=1, intermediate_size=32, num_hidden_layers=2,
        full_attention_interval=2, linear_num_key_heads=1, linear_num_value_heads=1,
        rope_parameters=rope(1e7, mrope_section=[11, 11, 10], mrope_interleaved=True, partial_rotary_factor=0.25)), dict(
            depth=2, hidden_size=64, out_hidden_size=32, num_heads=1, intermediate_size=48, patch_size=4,
            num_position_embeddings=49), dict(tie_word_embeddings=True), [[8, 4], [2, 2], [6, 12]]),
}
# Qwen2's with the names that the classes have at run time, as other programs save.
RUNNING = ["qwen2_vl_odd", "qwen2_5_vl_odd"]
# With a config.json as published; that of Qwen2's has the text model's fields outermost.
PUBLISHED = ["qwen2_vl_80", "qwen2_5_vl_80", "qwen3_vl_64", "qwen3_vl_moe_128"]


class Images(make_vision_goldens.Images):
    def __init__(self, config, grids, seed: int):
        vision = config.vision_config
        self.images = []
        for i, (height, width) in enumerate(grids):
            patch = vision.patch_size
            self.images.append(dict(
                shape=[height * width, 3, vision.temporal_patch_size, patch, patch], grid=[height, width],
                size=[height * patch, width * patch], seed=seed + i))
        self.values = [pixels(image["shape"], image["seed"]).flatten(1) for image in self.images]

    def features(self, count: int, dtype=torch.float32) -> dict:
        grids = torch.tensor([[1] + image["grid"] for image in self.images[:count]])
        return dict(pixel_values=torch.cat(self.values[:count]).to(dtype), image_grid_thw=grids)

    def inputs(self, ids: torch.Tensor, count: int, dtype=torch.float32) -> dict:
        return super().inputs(ids, count, dtype) | dict(mm_token_type_ids=(ids == IMAGE_TOKEN).int())


def positions(model, inputs: dict) -> list:
    found, _ = model.model.get_rope_index(
        inputs["input_ids"], inputs["mm_token_type_ids"], image_grid_thw=inputs["image_grid_thw"])
    return found[:, 0].tolist()


def golden(model, grids, seed: int) -> dict:
    images = Images(model.config, grids, seed)
    made = make_vision_goldens.golden(model, COUNTS, images, seed)
    if "tokens" not in made:
        return made
    inputs = images.inputs(torch.tensor([made["tokens"]]), len(grids))
    return {"tokens": made["tokens"], "positions": positions(model, inputs)} | made


def with_running_names(directory: pathlib.Path) -> None:
    path = directory / "model.safetensors"
    tensors = {}
    for name, tensor in safetensors.torch.load_file(path).items():
        name = name.replace("model.", "model.language_model.")
        tensors[name.replace("visual.", "model.visual.")] = tensor
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    path.chmod(0o644)


def with_experts_transposed(directory: pathlib.Path) -> None:
    path = directory / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    for name, tensor in tensors.items():
        if ".experts." in name:  # [experts, in, out]
            tensors[name] = tensor.transpose(1, 2).contiguous()
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    path.chmod(0o644)


def as_published(directory: pathlib.Path) -> None:
    file = directory / "config.json"
    config = json.loads(file.read_text())
    text, vision = config.pop("text_config"), config["vision_config"]
    parameters = text.pop("rope_parameters")
    text["rope_theta"] = parameters.pop("rope_theta")
    del vision["rope_parameters"]
    if config["model_type"].startswith("qwen3"):
        text["rope_scaling"] = parameters
        if "num_local_experts" in text:
            text |= dict(num_experts=text.pop("num_local_experts"), norm_topk_prob=True)
            with_experts_transposed(directory)
        vision["model_type"] = config["model_type"]
        config["text_config"] = text
    else:
        for name in ("model_type", "layer_types", "tie_word_embeddings", "pad_token_id"):
            del text[name]
        text |= dict(sliding_window=4096, rope_scaling=dict(type="mrope", mrope_section=parameters["mrope_section"]))
        for name in ("initializer_range", "model_type"):
            del vision[name]
        vision |= dict(in_chans=vision.pop("in_channels"), spatial_patch_size=vision["patch_size"])
        config |= text | dict(torch_dtype=config.pop("dtype"), vision_token_id=127)
    file.write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")


def make(name: str, parts, weights_seed: int, golden_seed: int, rewrite) -> None:
    """Makes a model of these parts (as in MODELS) and its golden. `rewrite` changes the saved files before."""
    family, text, vision, others, grids = parts
    config = getattr(transformers, family + "Config")(
        text_config=copy.deepcopy(text), vision_config=copy.deepcopy(vision), image_token_id=IMAGE_TOKEN,
        attn_implementation="eager", **copy.deepcopy(others))
    model = getattr(transformers, family + "ForConditionalGeneration")(config).to(torch.float32).eval()
    make_vision_goldens.randomize(model, weights_seed)
    make_goldens.save(model, HERE / name, {})
    rewrite(HERE / name)
    model = load(type(model), HERE / name, torch.float32)
    make_vision_goldens.write(name, golden_seed, lambda seed: golden(model, grids, seed))


def keep(directory: pathlib.Path) -> None:
    """Leaves files as transformers saves them."""


def main() -> None:
    for place, name in enumerate(MODELS):
        if not sys.argv[1:] or name in sys.argv[1:]:
            rewrite = with_running_names if name in RUNNING else as_published if name in PUBLISHED else keep
            make(name, MODELS[name], place + 101, place + 530, rewrite)


if __name__ == "__main__":
    main()
