"""Makes tiny random checkpoints of models that see (hf/<name>/) and their goldens (hf/<name>.json).

Rows that images become, logits and greedy tokens are those of transformers in float32 on a CPU, with
bf16 weights as checkpoints have them. Pixel values come from a formula (pixels), which the tests
have too.

  python3 tests/golden/make_vision_goldens.py [NAME...]
"""
import copy
import json
import pathlib
import sys
import tempfile

import numpy as np
import safetensors.torch
import torch
import transformers
from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape

import make_goldens
import make_tiny_llama
from make_goldens import HERE, ODD, WIDE, WIDE_HEADS, rope

GENERATED = 64
KEPT_ROWS = 5  # of each image

IMAGE_TOKEN = 126
PROMPT_COUNTS = [9, 17]  # around the first image
COUNTS = [20, 31, 0, 70]  # around three images, two of them next to each other
COUNTS_APART = [20, 31, 2, 70]
GEMMA3 = dict(model_type="gemma3_text", rope_parameters={
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
    "sliding_attention": rope(100.0)})

# Name: (prefix of the classes, text_config, vision_config, other fields, numbers of text tokens
# around the images, sizes of the images).
MODELS = {
    # Sizes that no vector width divides; images of 4 x 4 patches, and of pixels that belong to none.
    "llava_odd": ("Llava", ODD | dict(model_type="llama", mlp_bias=True, attention_bias=True), dict(
        model_type="clip_vision_model", hidden_size=42, intermediate_size=61, num_hidden_layers=3,
        num_attention_heads=6, image_size=22, patch_size=5, layer_norm_eps=1e-3), dict(), COUNTS, [[22, 22]] * 3),
    # CLIP's heads of 64 and patches of 14; two features, a projector without biases; a text model
    # with a window, tied by the outer field.
    "llava_64": ("Llava", WIDE | dict(model_type="mistral", sliding_window=90, tie_word_embeddings=False), dict(
        model_type="clip_vision_model", hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=1, image_size=98, patch_size=14), dict(
            vision_feature_layer=[-2, 2], multimodal_projector_bias=False, projector_hidden_act="quick_gelu",
            tie_word_embeddings=True), COUNTS, [[98, 98]] * 3),
    # SigLIP's heads of 72; its last layer's output, all tokens.
    "llava_siglip": ("Llava", WIDE_HEADS | dict(model_type="qwen2", hidden_size=96, intermediate_size=48), dict(
        model_type="siglip_vision_model", hidden_size=72, intermediate_size=77, num_hidden_layers=2,
        num_attention_heads=1, image_size=56, patch_size=14, vision_use_head=False), dict(
            vision_feature_layer=-1, vision_feature_select_strategy="full"), COUNTS, [[56, 56]] * 3),
    # Images wider, higher and smaller than their tiles; padding at the sides and above. The last one is so
    # narrow that its tiles show only padding.
    "llava_next_odd": ("LlavaNext", ODD | dict(model_type="llama"), dict(
        model_type="clip_vision_model", hidden_size=42, intermediate_size=61, num_hidden_layers=3,
        num_attention_heads=6, image_size=20, patch_size=5), dict(
            image_grid_pinpoints=[[20, 40], [40, 20], [40, 40], [60, 20]]), [20, 31, 0, 40, 30],
        [[30, 61], [57, 13], [31, 37], [100, 5]]),
    "llava_next_siglip": ("LlavaNext", WIDE_HEADS | dict(
        model_type="qwen2", hidden_size=96, intermediate_size=48, tie_word_embeddings=False), dict(
        model_type="siglip_vision_model", hidden_size=64, intermediate_size=72, num_hidden_layers=2,
        num_attention_heads=1, image_size=28, patch_size=14, vision_use_head=True), dict(
            image_grid_pinpoints=[[28, 56], [56, 28], [56, 56]], vision_feature_select_strategy="full"), COUNTS,
        [[30, 62], [300, 290], [500, 40]]),
    # LLaVA 1: its projector is a single matrix, for which transformers has no class.
    "llava_linear": ("Llava", ODD | dict(model_type="llama"), dict(
        model_type="clip_vision_model", hidden_size=32, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=2, image_size=28, patch_size=14), dict(), COUNTS, [[28, 28]] * 3),
    # Rows are averages of 2 x 2 patches; images are longer than the window and a chunk.
    "gemma3_vision_odd": ("Gemma3", ODD | GEMMA3 | dict(
        query_pre_attn_scalar=20, sliding_window=7,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"]), dict(
            model_type="siglip_vision_model", hidden_size=42, intermediate_size=61, num_hidden_layers=2,
            num_attention_heads=6, image_size=31, patch_size=5, layer_norm_eps=1e-2),
        dict(mm_tokens_per_image=9, tie_word_embeddings=False), COUNTS_APART, [[31, 31]] * 3),
    # The released models' heads of text, and SigLIP's of 72; averages of 4 x 4 patches.
    "gemma3_vision_256": ("Gemma3", GEMMA3 | dict(
        vocab_size=136, hidden_size=16, intermediate_size=48, num_attention_heads=2, num_key_value_heads=1,
        head_dim=256, num_hidden_layers=2, max_position_embeddings=512, sliding_window=64,
        layer_types=["sliding_attention", "full_attention"]), dict(
            model_type="siglip_vision_model", hidden_size=72, intermediate_size=77, num_hidden_layers=2,
            num_attention_heads=1, image_size=56, patch_size=7, vision_use_head=False),
        dict(mm_tokens_per_image=4), COUNTS_APART, [[56, 56]] * 3),
    # Only for make_mmproj.py: as gemma3_gguf in make_goldens.py, with rows of 4 x 4 patches.
    "gemma3_vision_gguf": ("Gemma3", ODD | GEMMA3 | dict(
        query_pre_attn_scalar=14, sliding_window=37, num_hidden_layers=7, intermediate_size=24, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}), dict(
                model_type="siglip_vision_model", hidden_size=36, intermediate_size=37, num_hidden_layers=2,
                num_attention_heads=3, image_size=24, patch_size=3, vision_use_head=False, layer_norm_eps=1e-3),
        dict(mm_tokens_per_image=4, tie_word_embeddings=True), COUNTS_APART, [[24, 24]] * 3),
}
# Written as older versions of transformers did.
OLDER = {"llava_64": "published", "llava_siglip": "running", "llava_next_siglip": "running",
         "gemma3_vision_256": "published"}
LINEAR = {"llava_linear"}


def pixels(shape, seed: int) -> torch.Tensor:
    """Values from -2 to 2 that look random."""
    i = np.arange(np.prod(shape), dtype=np.uint32) + np.uint32(seed * 1000003 & 0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        i = (i ^ (i >> np.uint32(shift))) * np.uint32(factor)
    i ^= i >> np.uint32(16)
    return torch.from_numpy((i >> np.uint32(8)).astype(np.float32) * np.float32(2.0 ** -22) - np.float32(2)).reshape(shape)


class Images:
    """Images, in the order of their placeholders."""
    bidirectional = False  # whether the tokens of an image see each other

    def __init__(self, config, sizes, seed: int):
        side = config.vision_config.image_size
        self.tiled = hasattr(config, "image_grid_pinpoints")
        self.bidirectional = config.model_type == "gemma3"
        self.images = []
        for i, size in enumerate(sizes):
            grid = get_anyres_image_grid_shape(size, config.image_grid_pinpoints, side) if self.tiled else (0, 0)
            self.images.append(dict(shape=[1 + grid[0] * grid[1], 3, side, side], grid=list(grid), size=list(size),
                                    seed=seed + i))
        self.values = [pixels(image["shape"], image["seed"]) for image in self.images]

    def features(self, count: int, dtype=torch.float32) -> dict:
        """The model's arguments for the first images."""
        if not self.tiled:
            return dict(pixel_values=torch.cat(self.values[:count]).to(dtype))
        most = max(len(v) for v in self.values)
        padded = [torch.cat([v, torch.zeros(most - len(v), *v.shape[1:])]) for v in self.values[:count]]
        return dict(pixel_values=torch.stack(padded).to(dtype),
                    image_sizes=torch.tensor([image["size"] for image in self.images[:count]]))

    def tokens(self, image: int, rows) -> list:
        """What stands in a sequence for an image that becomes these rows."""
        return [IMAGE_TOKEN] * len(rows)

    def inputs(self, ids: torch.Tensor, count: int, dtype=torch.float32) -> dict:
        """The model's arguments for a sequence with the first images."""
        types = dict(token_type_ids=(ids == IMAGE_TOKEN).int()) if self.bidirectional else {}
        return dict(input_ids=ids) | self.features(count, dtype) | types


def text_tokens(generator, vocab: int, count: int) -> list:
    tokens = torch.randint(0, vocab - 1, (count,), generator=generator)
    return (tokens + (tokens >= IMAGE_TOKEN)).tolist()


def sequence(generator, vocab: int, counts, images) -> torch.Tensor:
    """Texts of so many tokens, with the tokens of an image between them each."""
    ids = text_tokens(generator, vocab, counts[0])
    for count, image in zip(counts[1:], images):
        ids += image + text_tokens(generator, vocab, count)
    return torch.tensor(ids)


def in_bf16(model, tokens, images: Images, logits, kept) -> dict:
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        rounded = load(type(model), directory, torch.bfloat16)
    other = rounded(**images.inputs(tokens[None], len(images.images), torch.bfloat16)).logits[0].float()
    logprobs = logits.log_softmax(1) - other.log_softmax(1)
    return {"divergence": float(f"{make_tiny_llama.divergence(logits, other, kept):.3g}"),
            "median": float(f"{torch.gather(logits - other, 1, kept).abs().median():.3g}"),
            "worst_logprob": float(f"{torch.gather(logprobs, 1, kept).abs().max():.3g}")}


class Doubled(torch.overrides.TorchFunctionMode):
    """Computes in float64 what is written for float32."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def doubled(value):
            return torch.float64 if value is torch.float32 else value
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        kwargs = {name: doubled(value) for name, value in (kwargs or {}).items()}
        return function(*[doubled(value) for value in args], **kwargs)


def f32_error(model, tokens, images: Images, logits, kept) -> float:
    """The largest difference of a logprob to those in float64, with RoPE's frequencies in float32."""
    inputs = images.inputs(tokens[None], len(images.images), torch.float64)
    with Doubled():
        other = copy.deepcopy(model).double()(**inputs).logits[0]
    assert other.dtype == torch.float64
    logprobs = logits.double().log_softmax(1) - other.log_softmax(1)
    return float(f"{torch.gather(logprobs, 1, kept).abs().max():.3g}")


def image_rows(model, features: dict) -> list:
    """The rows of each image. Those for later layers of the text model are beside them (deepstack)."""
    found = model.model.get_image_features(**features)
    rows = zip(found.pooler_output, *getattr(found, "deepstack_features", []))
    return [torch.cat(of_image, dim=1).float() for of_image in rows]


@torch.no_grad()
def golden(model, counts, images: Images, seed: int) -> dict:
    generator, vocab = torch.Generator().manual_seed(seed), model.config.text_config.vocab_size
    num_images = len(images.images)
    rows = image_rows(model, images.features(num_images))
    shown = [images.tokens(i, of_image) for i, of_image in enumerate(rows)]
    tokens = sequence(generator, vocab, counts, shown)
    logits = model(**images.inputs(tokens[None], num_images)).logits[0]
    random = torch.randint(0, vocab, (len(tokens), make_tiny_llama.RANDOM), generator=generator)
    kept = torch.cat([torch.topk(logits, make_tiny_llama.TOP).indices, random], dim=1)
    prompt = sequence(generator, vocab, PROMPT_COUNTS, shown)
    ids, margins = prompt[None], []
    for _ in range(GENERATED):
        best = torch.topk(model(**images.inputs(ids, 1), use_cache=False).logits[0, -1], 2)
        margins.append(round(float(best.values[0] - best.values[1]), 5))
        if best.indices[0] == IMAGE_TOKEN:
            return {"margins": [0]}  # would stand for a row of an image
        ids = torch.cat([ids, best.indices[:1][None]], dim=1)
    for image, of_image in zip(images.images, rows):
        image["num_rows"] = len(of_image)
        at = torch.randperm(len(of_image), generator=generator)[:KEPT_ROWS].sort().values
        image["kept_rows"] = at.tolist()
        image["kept_values"] = [[round(v, 6) for v in row] for row in of_image[at].tolist()]
    return {
        "tokens": tokens.tolist(),
        "images": images.images,
        "kept_ids": kept.tolist(),
        "kept_logits": [[round(v, 6) for v in row] for row in torch.gather(logits, 1, kept).tolist()],
        "logsumexp": [round(v, 6) for v in torch.logsumexp(logits, dim=1).tolist()],
        "prompt": prompt.tolist(),
        "greedy": ids[0, len(prompt):].tolist(),
        "margins": margins,
        "bf16": in_bf16(model, tokens, images, logits, kept),
        "f32_error": f32_error(model, tokens, images, logits, kept),
    }


def randomize(model, seed: int) -> None:
    """Also the parameters that text models do not have."""
    make_goldens.randomize(model, seed)
    generator = torch.Generator().manual_seed(seed + 2000)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if ("norm" in name or "ln_q" in name) and name.endswith("weight"):
            of_tower = "vision_tower" in name or "visual" in name
            stored_minus_1 = model.config.model_type in ("gemma3", "qwen3_5") and not of_tower
            stored_minus_1 = stored_minus_1 and "linear_attn" not in name
            parameter.data = 0.3 * noise + (0 if stored_minus_1 else 1)
        elif parameter.dim() >= 4:  # the patch embedding
            parameter.data = noise * (0.7 / parameter[0].numel() ** 0.5)
        elif any(part in name for part in ("position_embedding", "pos_embed", "class_embedding")):
            parameter.data = noise * 0.5
        else:
            continue
        parameter.data = parameter.data.to(torch.bfloat16).to(torch.float32)


def older(directory: pathlib.Path, running: bool) -> None:
    """Rewrites a saved model as older versions of transformers did: with the names that checkpoints
    were published with, or those that the classes had (`running`); and without the fields of
    config.json that have their default values."""
    path = directory / "model.safetensors"
    tensors = {}
    for name, tensor in safetensors.torch.load_file(path).items():
        name = name.replace("vision_tower.", "vision_tower.vision_model.")
        if running:
            name = "model." + name.replace("language_model.model.", "language_model.")
        tensors[name.replace("model.language_model.lm_head.", "lm_head.")] = tensor
    if not running:  # a buffer that was once stored
        tensors["vision_tower.vision_model.embeddings.position_ids"] = torch.arange(50)[None]
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    path.chmod(0o644)
    file = directory / "config.json"
    config = json.loads(file.read_text())
    for part in ("text_config", "vision_config"):
        defaults = transformers.AutoConfig.for_model(config[part]["model_type"]).to_dict()
        config[part] = {k: v for k, v in config[part].items()
                        if k in ("model_type", "head_dim") or v != defaults.get(k)}
    config["torch_dtype"] = config.pop("dtype")
    if config["model_type"] != "gemma3":
        config |= dict(ignore_index=-100, vocab_size=config["text_config"]["vocab_size"])
    file.write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")


def make_linear(model) -> torch.nn.Linear:
    """Gives the model LLaVA 1's projector."""
    vision, text = model.config.vision_config.hidden_size, model.config.text_config.hidden_size
    model.model.multi_modal_projector = torch.nn.Linear(vision, text, dtype=model.dtype)
    return model.model.multi_modal_projector


@torch.no_grad()
def load(family, directory, dtype):
    model = family.from_pretrained(
        directory, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()
    tensors = safetensors.torch.load_file(pathlib.Path(directory) / "model.safetensors")
    prefix = "multi_modal_projector."
    if prefix + "weight" in tensors:
        make_linear(model).load_state_dict({name: tensors[prefix + name] for name in ("weight", "bias")})
    return model


def write(name: str, seed: int, make_golden) -> None:
    """Writes the golden of this seed, or of a later one whose tokens are certain and varied."""
    while min((made := make_golden(seed))["margins"]) < 1e-3 or len(set(made["greedy"])) < 16:
        seed += 1000
    made = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager attention"} | made
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in made.items())
    (HERE / f"{name}.json").write_text("{\n" + lines + "\n}\n")
    print(name, "smallest margin", min(made["margins"]), "distinct greedy tokens", len(set(made["greedy"])),
          "rows", [image["num_rows"] for image in made["images"]])


def create(family: str, text: dict, vision: dict, others: dict):
    """A model of these classes and configurations, with random weights."""
    config = getattr(transformers, family + "Config")(
        text_config=copy.deepcopy(text), vision_config=copy.deepcopy(vision), image_token_index=IMAGE_TOKEN,
        bos_token_id=1, eos_token_id=1, pad_token_id=None, attn_implementation="eager",
        **(dict(boi_token_index=127, eoi_token_index=128) if family == "Gemma3" else {}), **copy.deepcopy(others))
    return getattr(transformers, family + "ForConditionalGeneration")(config).to(torch.float32).eval()


def make(name: str, place: int) -> None:
    family, text, vision, others, counts, sizes = MODELS[name]
    model = create(family, text, vision, others)
    if name in LINEAR:
        make_linear(model)
    randomize(model, place + 61)
    make_goldens.save(model, HERE / name, {})
    if name in OLDER:
        older(HERE / name, OLDER[name] == "running")
    model = load(type(model), HERE / name, torch.float32)
    write(name, place + 410, lambda seed: golden(model, counts, Images(model.config, sizes, seed), seed))


def make_all(models, make_one) -> None:
    """Makes all of them, or those that the command line names."""
    for place, name in enumerate(models):
        if not sys.argv[1:] or name in sys.argv[1:]:
            make_one(name, place)


if __name__ == "__main__":
    make_all(MODELS, make)
