"""Makes the goldens of conversations with pictures (pictures.json): from the files to the tokens.

The models are those of make_vision_goldens.py, make_qwen_vl_goldens.py, make_glm_vl_goldens.py,
make_pixtral_goldens.py and make_minicpm_goldens.py, which get a preprocessor_config.json here. transformers prepares the pictures
(images/) as Pillow decodes them, and continues the conversations greedily, in float32 on a CPU. Needs
torchvision. With names of models, only their conversations are made anew.

  python3 tests/golden/make_picture_goldens.py [NAME...]
"""
import json
import pathlib
import sys

import PIL.Image
import PIL.ImageOps
import torch
import transformers

import make_minicpm_goldens
import make_pixtral_goldens

HERE = pathlib.Path(__file__).parent / "hf"
GENERATED = 16  # per turn
LEAST_MARGIN = 2e-3
# For each model, what the user says: numbers of tokens of text, and pictures.
TURNS = {
    "llava_odd": [[[5, "rgb.png", 6], [9]],
                  [["gray.jpg", 4, "lossy.webp", 7], [3, "rgb.png"]],
                  [[3, "rgb.png", "orientation_6.jpg", "animated.gif", 2], [5]]],
    "llava_64": [[[4, "lossy.webp", 9], [2, "orientation_6.jpg", 5]]],
    "llava_siglip": [[["rgb.png", 8], [6]],
                     [[7, "rgba.png", 5, "gray.jpg", 1], [4]]],
    "llava_next_odd": [[[4, "lossy.webp", 6], [3, "orientation_6.jpg", 5]],
                       [["larger.gif", 3, "rgb.png", 2, "interlaced_3x2.png", 4], [5]]],
    "llava_next_siglip": [[["lossy.webp", 5, "larger.gif", 3], [2, "rgb.png", 6]]],
    "qwen2_vl_odd": [[[5, "rgb.png", 6, "lossy.webp", 3], [9, "orientation_6.jpg", 4]]],
    "qwen2_vl_80": [[["lossy.webp", 4], [3, "rgb.png", 8]]],
    "qwen2_5_vl_odd": [[[3, "lossy.webp", 5], [6, "gray.jpg", 7, "orientation_6.jpg", 2], [4]]],
    "qwen2_5_vl_80": [[[2, "rgb.png", 7]]],
    "qwen3_vl_odd": [[[3, "lossy.webp", 5], [6, "gray.jpg", 7, "orientation_6.jpg", 2], [4]]],
    "qwen3_vl_64": [[["rgb.png", 4, "lossy.webp", 6], [3]]],
    "qwen35_vl_odd": [[[4, "lossy.webp", 6], [2, "orientation_6.jpg", 5, "rgb.png", 3], [7]]],
    "glm4v_odd": [[[4, "rgb.png", 5, "lossy.webp", 3], [7, "orientation_6.jpg", 4]]],
    "glm4v_128": [[["lossy.webp", 6], [3, "interlaced_3x2.png", 8]]],
    "glm4v_moe_odd": [[[3, "gray.jpg", 5], [2, "rgb.png", 7, "orientation_6.jpg", 6], [4]]],
    "glm4v_moe_128": [[[2, "rgb.png", 7]]],
    "pixtral_odd": [[[4, "lossy.webp", 5], [6, "rgb.png", 7, "orientation_6.jpg", 2]]],
    "mistral3_odd": [[["rgb.png", 3, "gray.jpg", 4], [5, "larger.gif", 2], [6]]],
    "mistral3_64": [[[2, "lossy.webp", 7], [3, "larger.gif", 4]]],
    "qwen3_vl_moe_odd": [[[5, "lossy.webp", 3, "rgb.png", 6], [4]]],
    "qwen3_vl_moe_128": [[[4, "gray.jpg", 6], [2, "rgb.png", 5]]],
    "gemma3_vision_odd": [[[5, "rgb.png", 6, "gray.jpg", 4], [9, "lossy.webp", 3], [2]]],
    "gemma3_vision_256": [[["lossy.webp", 4], [3, "orientation_6.jpg", 8]]],
    "minicpm_v_odd": [[[4, "lossy.webp", 5], [3, "rgb.png", 2, "progressive.jpg", 6], [4]]],
    "minicpm_v_35": [[[3, "lossy.webp", 4], [5, "rgb.png", 2]]],
    "minicpm_v_4x": [[["lossy.webp", 5, "smaller.webp", 3], [6, "gray.jpg"]]],
}


class PixtralProcessor:
    """The processor of models with Pixtral's tower, which also reads the size of patches."""

    def __init__(self, config, edge: int):
        self.config = config
        self.unit = config.vision_config.patch_size * getattr(config, "spatial_merge_size", 1)
        self.images = transformers.PixtralImageProcessor(size={"longest_edge": edge})

    def __call__(self, image, return_tensors: str) -> dict:
        return self.images(image, return_tensors=return_tensors, patch_size=self.unit)

    def save_pretrained(self, directory: pathlib.Path) -> None:
        fields = dict(processor_class="PixtralProcessor", patch_size=self.config.vision_config.patch_size,
                      image_token="[IMG]", image_break_token="[IMG_BREAK]", image_end_token="[IMG_END]")
        if hasattr(self.config, "spatial_merge_size"):
            fields |= dict(spatial_merge_size=self.config.spatial_merge_size)
        self.images.save_pretrained(directory)
        if directory.name == "pixtral_odd":  # as newer versions write them
            older = directory / "preprocessor_config.json"
            fields |= dict(image_processor=json.loads(older.read_text()))
            older.unlink()
        (directory / "processor_config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


def tiled(config) -> bool:
    return config.model_type == "llava_next"


def bidirectional(config) -> bool:
    """Whether the tokens of an image see each other."""
    return config.model_type == "gemma3"


def numbered(config) -> bool:
    """Whether images have numbers, and tiles that are images."""
    return config.model_type == "minicpmv4_6"


def processor(config):
    if numbered(config):
        mode = config.downsample_mode
        return transformers.MiniCPMV4_6ImageProcessor(
            patch_size=config.vision_config.patch_size, scale_resolution=30 if mode == "16x" else 21, max_slice_nums=5,
            downsample_mode=mode)
    if config.vision_config.model_type == "pixtral":
        return PixtralProcessor(config, 30 if config.model_type == "llava" else config.vision_config.image_size - 1)
    if hasattr(config.vision_config, "spatial_merge_size"):
        patch = config.vision_config.patch_size
        values = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3) if config.model_type.startswith("qwen3") else {}
        if config.model_type.startswith("glm4v"):
            frames, merge = config.vision_config.temporal_patch_size, config.vision_config.spatial_merge_size
            pixels = frames * patch ** 2
            return transformers.Glm4vImageProcessor(
                patch_size=patch, temporal_patch_size=frames, merge_size=merge,
                size={"shortest_edge": 8 * pixels, "longest_edge": 100 * pixels})
        return transformers.Qwen2VLImageProcessor(
            **values, patch_size=patch, size={"shortest_edge": 8 * patch ** 2, "longest_edge": 100 * patch ** 2})
    side = config.vision_config.image_size
    if tiled(config):
        return transformers.LlavaNextImageProcessor(
            size={"shortest_edge": side}, crop_size={"height": side, "width": side},
            image_grid_pinpoints=config.image_grid_pinpoints)
    if bidirectional(config):
        return transformers.Gemma3ImageProcessor(size={"height": side, "width": side})
    if config.vision_config.model_type == "siglip_vision_model":
        return transformers.SiglipImageProcessor(size={"height": side, "width": side})
    return transformers.CLIPImageProcessor(size={"shortest_edge": side}, crop_size={"height": side, "width": side})


def picture(name: str) -> PIL.Image.Image:
    return PIL.ImageOps.exif_transpose(PIL.Image.open(HERE.parent / "images" / name)).convert("RGB")


class Conversation:
    def __init__(self, model, preprocess, generator):
        self.model, self.preprocess, self.generator = model, preprocess, generator
        self.token = getattr(model.config, "image_token_id", None) or model.config.image_token_index
        self.lines = model.config.vision_config.model_type == "pixtral"
        self.ids, self.values = [], []

    def pictures(self, prepared) -> dict:
        """The model's arguments for images."""
        lists = {name: [values[name] for values in prepared] for name in prepared[0]
                 if name not in ("num_crops", "grids", "num_patches_per_image")}
        if numbered(self.model.config):
            lists["pixel_values"] = [torch.cat(lists["pixel_values"], dim=-1)]
        if self.lines:
            most = [max(values.shape[i] for values in lists["pixel_values"]) for i in (2, 3)]
            lists["pixel_values"] = [
                torch.nn.functional.pad(values, [0, most[1] - values.shape[3], 0, most[0] - values.shape[2]])
                for values in lists["pixel_values"]]
            lists["image_sizes"] = [torch.as_tensor(sizes) for sizes in lists["image_sizes"]]
        if tiled(self.model.config):
            most = max(tiles.shape[1] for tiles in lists["pixel_values"])
            lists["pixel_values"] = [torch.nn.functional.pad(tiles, [0] * 7 + [most - tiles.shape[1]])
                                     for tiles in lists["pixel_values"]]
        return {name: torch.cat(values) for name, values in lists.items()}

    def inputs(self) -> dict:
        """The model's arguments for all that was said."""
        ids = torch.tensor([self.ids])
        pictures = self.pictures(self.values)
        if "image_grid_thw" in pictures:
            pictures["mm_token_type_ids"] = (ids == self.token).int()
        if bidirectional(self.model.config):
            pictures["token_type_ids"] = (ids == self.token).int()
        return dict(input_ids=ids) | pictures

    def say(self, parts) -> list:
        """Adds parts of a message; returns them with tokens instead of their number."""
        said = []
        for part in parts:
            if isinstance(part, str):
                values = self.preprocess(picture(part), return_tensors="pt")
                tiles = self.model.model.get_image_features(**self.pictures([values])).pooler_output
                rows = tiles[0]
                self.values.append(values)
                if numbered(self.model.config):
                    number = make_minicpm_goldens.number(len(self.values) - 1)
                    self.ids += number + make_minicpm_goldens.shown([len(tile) for tile in tiles], values["grids"][0][1])
                    said.append(number)
                elif self.lines:
                    height, width = (int(side) // self.preprocess.unit for side in values["image_sizes"][0])
                    self.ids += make_pixtral_goldens.lines(height, width)
                else:
                    self.ids += [self.token] * len(rows)
                said.append(part)
            else:
                tokens = torch.randint(3, self.token, (part,), generator=self.generator).tolist()
                self.ids += tokens
                said.append(tokens)
        return said

    def hear(self):
        """Continues; returns the tokens and their least margin."""
        answer, margin = [], 1e9
        for _ in range(GENERATED):
            logits = self.model(**self.inputs(), use_cache=False).logits[0, -1]
            best = torch.topk(logits, 2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            answer.append(int(best.indices[0]))
            if answer[-1] == self.token:
                return answer, 0  # would stand for a row of a picture
            self.ids.append(answer[-1])
        return answer, margin


def converse(model, preprocess, turns, seed: int):
    conversation = Conversation(model, preprocess, torch.Generator().manual_seed(seed))
    made, least = [], 1e9
    for parts in turns:
        said = conversation.say(parts)
        prompt_tokens = len(conversation.ids)
        answer, margin = conversation.hear()
        least = min(least, margin)
        made.append({"parts": said, "prompt_tokens": prompt_tokens, "answer": answer})
    return made, least


def hold(conversations_of: dict, place: int, make_processor, path: pathlib.Path, save: bool, wanted=()) -> None:
    """Writes conversations to a file, and perhaps the processors to the models' directories. Keeps the
    conversations of models that are not wanted, unless all are."""
    kept = json.loads(path.read_text())["conversations"] if wanted else []
    lines = []
    for place, (name, conversations) in enumerate(conversations_of.items(), place):
        if wanted and name not in wanted:
            lines += [json.dumps(made, separators=(",", ":")) for made in kept if made["model"] == name]
            continue
        model = transformers.AutoModelForImageTextToText.from_pretrained(
            HERE / name, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
        preprocess = make_processor(model.config)
        if save:
            preprocess.save_pretrained(HERE / name)
        for number, turns in enumerate(conversations):
            seed = 100 * place + number
            while True:
                made, least = converse(model, preprocess, turns, seed)
                if least >= LEAST_MARGIN:
                    break
                seed += 1000
            print(name, number, "smallest margin", least)
            lines.append(json.dumps({"model": name, "turns": made}, separators=(",", ":")))
    path.write_text(
        '{"made_with": "transformers ' + transformers.__version__ + ', torch ' + torch.__version__ +
        ', float32, eager attention",\n "conversations": [\n  ' + ",\n  ".join(lines) + "\n ]}\n")


@torch.no_grad()
def main() -> None:
    hold(TURNS, 0, processor, HERE.parent / "pictures.json", save=True, wanted=sys.argv[1:])


if __name__ == "__main__":
    main()
