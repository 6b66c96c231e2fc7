"""Writes tiny random models as Hugging Face directories (hf_*/) with their goldens (hf_*.json), as
make_tiny_llama.py does in GGUF: in float32 and bfloat16, in one file and in several.

  python3 tests/golden/make_tiny_hf.py
"""

import copy
import json
import pathlib
import shutil

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import make_tiny_llama
import make_tiny_qwen3

HERE = pathlib.Path(__file__).parent
QWEN3 = make_tiny_qwen3.MODELS

# Name: (model class, configuration class, parameters, weight type, bytes per file).
MODELS = {
    "hf_llama_f32": (LlamaForCausalLM, LlamaConfig, make_tiny_llama.MODELS["llama_odd"], torch.float32, "10MB"),
    "hf_llama_bf16": (LlamaForCausalLM, LlamaConfig, make_tiny_llama.MODELS["llama_tied"], torch.bfloat16, "10MB"),
    "hf_qwen3_f32": (QWEN3["qwen3_odd"][0], QWEN3["qwen3_odd"][1], QWEN3["qwen3_odd"][3], torch.float32, "200KB"),
    "hf_qwen3_moe_bf16": (QWEN3["qwen3_moe_odd"][0], QWEN3["qwen3_moe_odd"][1], QWEN3["qwen3_moe_odd"][3],
                          torch.bfloat16, "100KB"),
}


def main() -> None:
    for seed, (name, (model_class, config_class, parameters, dtype, shard)) in enumerate(MODELS.items()):
        config = config_class(**parameters, bos_token_id=257, eos_token_id=257, attn_implementation="eager")
        config._experts_implementation = "eager"
        model = model_class(config).eval()
        make_tiny_qwen3.randomize(model, seed + 31)
        for parameter in model.parameters():
            parameter.data = parameter.data.to(dtype).to(torch.float32)
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        # Copies first, because to() would also round RoPE's inputs.
        copy.deepcopy(model).to(dtype).save_pretrained(folder, max_shard_size=shard)
        make_tiny_llama.write_golden(model, name, parameters, seed + 130)
        print(sorted(p.name for p in folder.iterdir()), json.loads((folder / "config.json").read_text()))


if __name__ == "__main__":
    main()
