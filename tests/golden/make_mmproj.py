"""Converts tiny Hugging Face checkpoints that see (hf/<name>/) to a GGUF model and its mmproj file
(mmproj/<name>/), with llama.cpp's own converters, so that their goldens (hf/<name>.json) hold for both.
The vocabulary is made up.

  python3 tests/golden/make_mmproj.py PATH_TO_LLAMA_CPP [NAME...]
"""
import contextlib
import json
import pathlib
import runpy
import shutil
import sys
import tempfile
import unittest.mock

sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]  # before transformers imports another gguf
import safetensors.torch
import torch
import transformers

import make_picture_goldens

HERE = pathlib.Path(__file__).parent
IMAGE_TOKEN = 126
# The architectures of the language models, and for LLaVA, how its mmproj is made: by the old converter,
# which is the only one that has ever made one.
NAMES = {"llava_odd": "LlamaForCausalLM", "qwen2_vl_gguf": None, "qwen2_5_vl_odd": None, "gemma3_vision_gguf": None,
         "qwen3_vl_odd": None, "pixtral_gguf": None, "mistral3_gguf": None}
# The special tokens of the vocabulary; by default Qwen's.
PIXTRAL = {IMAGE_TOKEN: "[IMG]", 127: "[IMG_BREAK]", 128: "[IMG_END]"}
SPELLINGS = {"pixtral_gguf": PIXTRAL, "mistral3_gguf": PIXTRAL, "llava_odd": {IMAGE_TOKEN: "<image>"},
             "gemma3_vision_gguf": {IMAGE_TOKEN: "<image_soft_token>", 127: "<start_of_image>", 128: "<end_of_image>"}}
# What is said about pictures (mmproj/pictures.json), as in make_picture_goldens.py.
TURNS = {"llava_odd": [[[6, "lossy.webp", 3, "rgb.png", 5], [4, "orientation_6.jpg"]]]}
# Where GGUF means by default what the released models have, but not these.
KEYS = {"qwen2_5_vl_odd": {"clip.vision.window_size": 12}}


def published(name: str) -> str:
    """The name of a tensor in checkpoints as published."""
    for part in ("visual.", "vision_tower.", "multi_modal_projector."):
        name = name.replace("model." + part, part)
    name = name.replace("model.language_model.", "model.")
    return name.replace("language_model.model.", "model.").replace("language_model.lm_head.", "lm_head.")


def write_directory(folder: pathlib.Path, config: dict, tensors: dict) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors",
                                {"format": "pt"})


def convert(gguf, conversion, folder, out, kind, keys, spellings) -> None:
    def set_vocab(self) -> None:
        count = self.hparams["vocab_size"]
        types = [gguf.TokenType.CONTROL if i in spellings else gguf.TokenType.NORMAL for i in range(count)]
        self.gguf_writer.add_tokenizer_model("gpt2")
        self.gguf_writer.add_tokenizer_pre("smollm")
        self.gguf_writer.add_token_list([spellings.get(i, f"<{i}>") for i in range(count)])
        self.gguf_writer.add_token_types(types)
        self.gguf_writer.add_token_merges(["< 0"])

    model_type = conversion.ModelType[kind]
    hparams = conversion.ModelBase.load_hparams(folder, False)
    name = conversion.get_model_architecture(hparams, model_type)
    model_class = conversion.get_model_class(name, mmproj=kind == "MMPROJ")
    if kind == "TEXT":
        model_class.set_vocab = set_vocab
    with torch.inference_mode():
        model = model_class(folder, gguf.LlamaFileType.MOSTLY_BF16, out)
        for key, value in keys.items():
            model.gguf_writer.add_uint32(key, value)
        model.write()


def convert_llava(llama_cpp: str, folder: pathlib.Path, config: dict, tensors: dict, out: pathlib.Path) -> None:
    """Makes the mmproj file of a LLaVA from CLIP and the projector. The converter was written for older
    versions of transformers, where CLIP's parts were in a module vision_model."""
    class OldClip(torch.nn.Module):
        def __init__(self, clip):
            super().__init__()
            self.vision_model = clip

        @classmethod
        def from_pretrained(cls, path):
            return cls(new_clip.from_pretrained(path))

    clip, projector = folder / "clip", folder / "llava.projector"
    clip.mkdir()
    towers = {k.removeprefix("vision_tower."): v.float() for k, v in tensors.items() if k.startswith("vision_tower.")}
    write_directory(clip, config["vision_config"] | {
        "architectures": ["CLIPVisionModel"], "dtype": "float32",
        "vision_feature_layer": config["vision_feature_layer"]}, towers)
    torch.save({k: v.float() for k, v in tensors.items() if k.startswith("multi_modal_projector.")}, projector)
    script = pathlib.Path(llama_cpp) / "tools/mtmd/legacy-models/convert_image_encoder_to_gguf.py"
    arguments = [script, "-m", clip, "--clip-model-is-vision", "--llava-projector", projector, "-o", folder / "out"]
    new_clip = transformers.CLIPVisionModel
    # `import transformers` gives another object than later imports from it.
    with unittest.mock.patch.object(sys.modules["transformers"], "CLIPVisionModel", OldClip), \
            unittest.mock.patch.object(sys, "argv", [str(argument) for argument in arguments]), \
            contextlib.redirect_stdout(None):
        runpy.run_path(str(script))
    shutil.move(folder / "out" / "mmproj-model-f16.gguf", out)


def make(name: str, llama_cpp: str, gguf, conversion) -> None:
    source, target = HERE / "hf" / name, HERE / "mmproj" / name
    target.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    tensors = {published(k): v for k, v in safetensors.torch.load_file(source / "model.safetensors").items()}
    paths = {"TEXT": target / f"{name}.gguf", "MMPROJ": target / f"mmproj-{name}.gguf"}
    architecture = NAMES[name]
    spellings = SPELLINGS.get(name, {IMAGE_TOKEN: "<|image_pad|>"})
    if config["model_type"] == "gemma3":
        tensors = {k.replace("vision_tower.", "vision_tower.vision_model."): v for k, v in tensors.items()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / name  # becomes general.name
        folder.mkdir()
        if (source / "preprocessor_config.json").exists():
            shutil.copy(source / "preprocessor_config.json", folder)
        else:
            (folder / "preprocessor_config.json").write_text(json.dumps(dict(
                image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711])))
        vocabulary = {f"<{i}>": i for i in range(config["text_config"]["vocab_size"])}
        added = [dict(id=i, content=spelling) for i, spelling in spellings.items()]
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": added}))
        (folder / "tokenizer_config.json").write_text("{}")
        if architecture:
            convert_llava(llama_cpp, folder, config, tensors, paths["MMPROJ"])
            texts = {k: v for k, v in tensors.items() if k.startswith(("model.", "lm_head."))}
            write_directory(folder, config["text_config"] | {"architectures": [architecture]}, texts)
        else:
            write_directory(folder, config, tensors)
            convert(gguf, conversion, folder, paths["MMPROJ"], "MMPROJ", KEYS.get(name, {}), spellings)
        convert(gguf, conversion, folder, paths["TEXT"], "TEXT", {}, spellings)
    if name.endswith("_gguf"):  # only needed here
        shutil.rmtree(source)
    print(name, {kind: path.stat().st_size for kind, path in paths.items()})


def padding_processor(config):
    """LLaVA's own preparation, which files in GGUF have."""
    side = config.vision_config.image_size
    return transformers.LlavaImageProcessor(
        do_pad=True, size={"shortest_edge": side}, crop_size={"height": side, "width": side})


def main() -> None:
    llama_cpp = sys.argv[1]
    import conversion
    import gguf
    for name in sys.argv[2:] or NAMES:
        make(name, llama_cpp, gguf, conversion)
    with torch.no_grad():
        make_picture_goldens.hold(TURNS, 50, padding_processor, HERE / "mmproj" / "pictures.json", save=False)


if __name__ == "__main__":
    main()
