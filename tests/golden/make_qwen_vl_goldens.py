"""Makes tiny random checkpoints of Qwen's models that see (hf/<name>/) and their goldens
(hf/<name>.json), as make_vision_goldens.py does for others. Images have grids of patches of different
sizes, and positions have three dimensions, which the goldens list.

  python3 tests/golden/make_qwen_vl_goldens.py [NAME...]
"""
import copy
import json
import pathlib
import sys
import tempfile

import safetensors.torch
import torch
import transformers

import make_goldens
import make_tiny_llama
from make_goldens import HERE, ODD_HEADS, WIDE_HEADS, rope
from make_vision_goldens import GENERATED, IMAGE_TOKEN, KEPT_ROWS, PROMPT_COUNTS, pixels, text_tokens

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
}
# With the names that the classes have at run time, as other programs save; the others get a
# config.json as published, whose outermost fields are the text model's.
RUNNING = ["qwen2_vl_odd", "qwen2_5_vl_odd"]


class Images:
    """Images, in the order of their placeholders."""

    def __init__(self, config, grids, seed: int):
        vision = config.vision_config
        self.token, self.images = config.image_token_id, []
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
        """The model's arguments for a sequence with the first images."""
        return dict(input_ids=ids, mm_token_type_ids=(ids == self.token).int()) | self.features(count, dtype)


def sequence(generator, config, counts, rows) -> torch.Tensor:
    """Texts of so many tokens, with an image between them each."""
    vocab, token = config.text_config.vocab_size, config.image_token_id
    ids = text_tokens(generator, vocab, counts[0], token)
    for count, image in zip(counts[1:], rows):
        ids += [token] * len(image) + text_tokens(generator, vocab, count, token)
    return torch.tensor(ids)


def positions(model, inputs: dict) -> list:
    found, _ = model.model.get_rope_index(
        inputs["input_ids"], inputs["mm_token_type_ids"], image_grid_thw=inputs["image_grid_thw"])
    return found[:, 0].tolist()


def in_bf16(model, tokens, images: Images, logits, kept) -> dict:
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        rounded = type(model).from_pretrained(directory, dtype=torch.bfloat16, attn_implementation="eager").eval()
    other = rounded(**images.inputs(tokens[None], len(images.images), torch.bfloat16)).logits[0].float()
    logprobs = logits.log_softmax(1) - other.log_softmax(1)
    return {"divergence": float(f"{make_tiny_llama.divergence(logits, other, kept):.3g}"),
            "median": float(f"{torch.gather(logits - other, 1, kept).abs().median():.3g}"),
            "worst_logprob": float(f"{torch.gather(logprobs, 1, kept).abs().max():.3g}")}


@torch.no_grad()
def golden(model, grids, seed: int) -> dict:
    config, generator = model.config, torch.Generator().manual_seed(seed)
    images = Images(config, grids, seed)
    rows = [r.float() for r in model.model.get_image_features(**images.features(len(grids))).pooler_output]
    tokens = sequence(generator, config, COUNTS, rows)
    inputs = images.inputs(tokens[None], len(grids))
    logits = model(**inputs).logits[0]
    random = torch.randint(0, config.text_config.vocab_size, (len(tokens), make_tiny_llama.RANDOM), generator=generator)
    kept = torch.cat([torch.topk(logits, make_tiny_llama.TOP).indices, random], dim=1)
    prompt = sequence(generator, config, PROMPT_COUNTS, rows)
    ids, margins = prompt[None], []
    for _ in range(GENERATED):
        best = torch.topk(model(**images.inputs(ids, 1), use_cache=False).logits[0, -1], 2)
        margins.append(round(float(best.values[0] - best.values[1]), 5))
        if best.indices[0] == config.image_token_id:
            return {"margins": [0]}  # would stand for a row of an image
        ids = torch.cat([ids, best.indices[:1][None]], dim=1)
    for image, of_image in zip(images.images, rows):
        image["num_rows"] = len(of_image)
        at = torch.randperm(len(of_image), generator=generator)[:KEPT_ROWS].sort().values
        image["kept_rows"] = at.tolist()
        image["kept_values"] = [[round(v, 6) for v in row] for row in of_image[at].tolist()]
    return {
        "tokens": tokens.tolist(),
        "positions": positions(model, inputs),
        "images": images.images,
        "kept_ids": kept.tolist(),
        "kept_logits": [[round(v, 6) for v in row] for row in torch.gather(logits, 1, kept).tolist()],
        "logsumexp": [round(v, 6) for v in torch.logsumexp(logits, dim=1).tolist()],
        "prompt": prompt.tolist(),
        "greedy": ids[0, len(prompt):].tolist(),
        "margins": margins,
        "bf16": in_bf16(model, tokens, images, logits, kept),
    }


def randomize(model, seed: int) -> None:
    """Also the parameters that text models do not have."""
    make_goldens.randomize(model, seed)
    generator = torch.Generator().manual_seed(seed + 2000)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if ("norm" in name or "ln_q" in name) and name.endswith("weight"):
            parameter.data = 1 + 0.3 * noise
        elif parameter.dim() == 5:  # the patch embedding
            parameter.data = noise * (0.7 / parameter[0].numel() ** 0.5)
        else:
            continue
        parameter.data = parameter.data.to(torch.bfloat16).to(torch.float32)


def with_running_names(directory: pathlib.Path) -> None:
    path = directory / "model.safetensors"
    tensors = {}
    for name, tensor in safetensors.torch.load_file(path).items():
        name = name.replace("model.", "model.language_model.")
        tensors[name.replace("visual.", "model.visual.")] = tensor
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    path.chmod(0o644)


def as_published(directory: pathlib.Path) -> None:
    file = directory / "config.json"
    config = json.loads(file.read_text())
    text, vision = config.pop("text_config"), config["vision_config"]
    for name in ("model_type", "layer_types", "tie_word_embeddings", "pad_token_id"):
        del text[name]
    parameters = text.pop("rope_parameters")
    text |= dict(rope_theta=parameters["rope_theta"], sliding_window=4096,
                 rope_scaling=dict(type="mrope", mrope_section=parameters["mrope_section"]))
    for name in ("rope_parameters", "initializer_range", "model_type"):
        del vision[name]
    vision |= dict(in_chans=vision.pop("in_channels"), spatial_patch_size=vision["patch_size"])
    config |= text | dict(torch_dtype=config.pop("dtype"), vision_token_id=127)
    file.write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")


def make(name: str, place: int) -> None:
    family, text, vision, others, grids = MODELS[name]
    config = getattr(transformers, family + "Config")(
        text_config=copy.deepcopy(text), vision_config=copy.deepcopy(vision), image_token_id=IMAGE_TOKEN,
        attn_implementation="eager", **copy.deepcopy(others))
    model = getattr(transformers, family + "ForConditionalGeneration")(config).to(torch.float32).eval()
    randomize(model, place + 101)
    make_goldens.save(model, HERE / name, {})
    if name in RUNNING:
        with_running_names(HERE / name)
    else:
        as_published(HERE / name)
    model = type(model).from_pretrained(HERE / name, dtype=torch.float32, attn_implementation="eager").eval()
    seed = place + 530
    while min((made := golden(model, grids, seed))["margins"]) < 1e-3 or len(set(made["greedy"])) < 16:
        seed += 1000
    made = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager attention"} | made
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in made.items())
    (HERE / f"{name}.json").write_text("{\n" + lines + "\n}\n")
    print(name, "smallest margin", min(made["margins"]), "distinct greedy tokens", len(set(made["greedy"])),
          "rows", [image["num_rows"] for image in made["images"]])


def main() -> None:
    for place, name in enumerate(MODELS):
        if not sys.argv[1:] or name in sys.argv[1:]:
            make(name, place)


if __name__ == "__main__":
    main()
