"""Converts tiny Hugging Face checkpoints (hf/<name>/) to GGUF (hf/<name>.gguf) with llama.cpp's own
converter, so that their goldens hold for both. The vocabulary is made up.

  python3 tests/golden/make_gguf.py PATH_TO_LLAMA_CPP [NAME...]
"""

import json
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).parent / "hf"

# Models whose settings GGUF has fields for. It has none for windows of Qwen2 and Mixtral, limits of
# gpt-oss other than 7, scalars of Gemma and MPT other than their head size, Qwen2-MoE's layers
# without experts, and DeepSeek's two mscales.
NAMES = ["qwen2_128", "mixtral_128", "gpt_oss_64", "gemma2_256", "qwen2_moe_gguf", "gemma3_gguf", "phi3_gguf",
         "glm4_odd", "olmo2_128", "smollm3_128", "glm4_moe_odd", "glm4_moe_128",
         "deepseek_v2_gguf", "deepseek_v2_256", "deepseek_v3_256", "mpt_gguf", "ernie4_5_128",
         "qwen35_gguf"]
# Like files from before llama.cpp kept latents: one tensor for keys and values of all heads.
WITHOUT_LATENTS = ["deepseek_v2_256"]


def main() -> None:
    llama_cpp = sys.argv[1]
    sys.path[:0] = [llama_cpp, llama_cpp + "/gguf-py"]
    import gguf
    import numpy as np
    import torch
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    def set_vocab(self) -> None:
        count = self.hparams["vocab_size"]
        self.gguf_writer.add_tokenizer_model("gpt2")
        self.gguf_writer.add_tokenizer_pre("smollm")
        self.gguf_writer.add_token_list([f"<{i}>" for i in range(count)])
        self.gguf_writer.add_token_types([gguf.TokenType.NORMAL] * count)
        self.gguf_writer.add_token_merges(["< 0"])

    def without_latents(model_class):
        class WithoutLatents(model_class):
            model_arch = model_class.model_arch

            def set_gguf_parameters(self) -> None:
                super().set_gguf_parameters()
                keys = self.gguf_writer.kv_data[0]
                for key, of_heads in (("key_length", "key_length_mla"), ("value_length", "value_length_mla"),
                                      ("head_count_kv", "head_count")):
                    keys[f"deepseek2.attention.{key}"] = keys[f"deepseek2.attention.{of_heads}"]
                del keys["deepseek2.attention.key_length_mla"], keys["deepseek2.attention.value_length_mla"]

            def modify_tensors(self, data_torch, name, bid):
                # Skips the method that splits the tensor.
                past = super(model_class, self) if name.endswith("kv_b_proj.weight") else super()
                yield from past.modify_tensors(data_torch, name, bid)

        return WithoutLatents

    for name in sys.argv[2:] or NAMES:
        directory = HERE / name
        hparams = ModelBase.load_hparams(directory, False)
        architecture = get_model_architecture(hparams, ModelType.TEXT)
        model_class = get_model_class(architecture.replace("Mpt", "MPT"))  # MosaicML's spelling
        if name in WITHOUT_LATENTS:
            model_class = without_latents(model_class)
        model_class.set_vocab = set_vocab
        if name.startswith("qwen35"):  # transformers does not save its draft layer
            model_class.no_mtp = True
        tokenizer = directory / "tokenizer.json"  # some converters count its tokens
        vocabulary = {f"<{i}>": i for i in range(hparams["vocab_size"])}
        tokenizer.write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []}))
        with torch.inference_mode():
            model = model_class(directory, gguf.LlamaFileType.MOSTLY_BF16, HERE / f"{name}.gguf")
            # A draft layer, which transformers does not save.
            if model.block_count > hparams.get("num_hidden_layers", model.block_count):
                model.gguf_writer.add_tensor(f"blk.{model.block_count - 1}.nextn.enorm.weight", np.ones(7, np.float32))
            model.write()
        tokenizer.unlink()
        if name.endswith("_gguf"):  # only needed here
            shutil.rmtree(directory)
        print(name, (HERE / f"{name}.gguf").stat().st_size)


if __name__ == "__main__":
    main()
