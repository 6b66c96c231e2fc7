"""Makes tiny random embedding models and their goldens: BERT (hf/bert_*/) and Qwen3-Embedding
(hf/qwen3_embedding/), with sentence-transformers' files, and two of them as GGUF.

Hidden states are those of transformers in float32 on a CPU. Vectors follow sentence-transformers:
Pooling takes the mean of all tokens, the first or the last one, and Normalize divides by the
length.

  python3 tests/golden/make_embedding_goldens.py
"""

import copy
import json
import pathlib
import shutil

import gguf
import tokenizers
import torch
from transformers import BertConfig, BertModel, Qwen3Config, Qwen3ForCausalLM

import make_tiny_qwen3

HERE = pathlib.Path(__file__).parent
LENGTHS = [1, 2, 17, 16, 64, 130, 257, 300]

BERT = {
    # Sizes that no vector width divides; the first token's state, not normalized.
    "bert_odd": (dict(vocab_size=131, hidden_size=42, intermediate_size=61, num_hidden_layers=3, num_attention_heads=6,
                      max_position_embeddings=300, type_vocab_size=2, layer_norm_eps=1e-5, hidden_act="gelu"),
                 "cls", False),
    # Heads of 64, like BERT; the mean, normalized.
    "bert_64": (dict(vocab_size=136, hidden_size=128, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
                     max_position_embeddings=320, type_vocab_size=1, layer_norm_eps=1e-12, hidden_act="gelu_new"),
                "mean", True),
}
QWEN3 = dict(vocab_size=264, hidden_size=42, intermediate_size=61, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=3, head_dim=14, max_position_embeddings=512, rms_norm_eps=1e-5,
             tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
MODES = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}


def randomize(model, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("norm.weight") or name.endswith("LayerNorm.weight"):
            value = 1 + 0.3 * noise
        elif name.endswith("bias"):
            value = 0.3 * noise
        elif "embed" in name:
            value = noise
        else:
            value = noise * (1.5 / parameter.shape[1] ** 0.5)
        parameter.data = value.to(torch.bfloat16).to(torch.float32)


def write_json(path: pathlib.Path, value) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def write_modules(folder: pathlib.Path, hidden_size: int, pooling: str, normalize: bool, prompts: dict) -> None:
    names = ["Transformer", "Pooling"] + ["Normalize"] * normalize
    write_json(folder / "modules.json", [
        {"idx": i, "name": str(i), "path": "" if i == 0 else f"{i}_{name}",
         "type": f"sentence_transformers.models.{name}"} for i, name in enumerate(names)])
    write_json(folder / "1_Pooling" / "config.json",
               {"word_embedding_dimension": hidden_size} | {mode: name == pooling for name, mode in MODES.items()} |
               {"pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False, "include_prompt": True})
    write_json(folder / "config_sentence_transformers.json",
               {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"})


def pool(hidden: torch.Tensor, pooling: str, normalize: bool) -> torch.Tensor:
    vector = {"mean": hidden.mean(0), "cls": hidden[0], "last": hidden[-1]}[pooling]
    return vector / vector.norm() if normalize else vector


def write_golden(name: str, model, vocab_size: int, pooling: str, normalize: bool, seed: int, file: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    texts = [torch.randint(2, vocab_size - 8, (n,), generator=generator).tolist() for n in LENGTHS]
    with torch.no_grad():
        hidden = [model(input_ids=torch.tensor([ids])).last_hidden_state[0] for ids in texts]
    golden = {
        "model": name, "texts": texts,
        "vectors": [[round(v, 7) for v in pool(h, pooling, normalize).tolist()] for h in hidden],
    }
    (HERE / file).write_text(json.dumps(golden) + "\n")


BERT_NAMES = {
    "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
}


def write_bert_gguf(model: BertModel, path: pathlib.Path, pooling: gguf.PoolingType) -> None:
    """Like llama.cpp's converter, but without a vocabulary."""
    c = model.config
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name(path.stem)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_layer_norm_eps(c.layer_norm_eps)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    for name, parameter in model.named_parameters():
        if name.startswith("pooler."):
            continue
        place, last = name.rsplit(".", 1)
        prefix = ""
        if place.startswith("encoder.layer."):
            _, _, layer, place = place.split(".", 3)
            prefix = f"blk.{layer}."
        writer.add_tensor(f"{prefix}{BERT_NAMES[place]}.{last}", parameter.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_bert() -> None:
    for seed, (name, (parameters, pooling, normalize)) in enumerate(BERT.items()):
        model = BertModel(BertConfig(**parameters, attn_implementation="eager")).to(torch.float32).eval()
        randomize(model, seed + 51)
        folder = HERE / "hf" / name
        shutil.rmtree(folder, ignore_errors=True)
        copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
        (folder / "model.safetensors").chmod(0o644)
        write_modules(folder, parameters["hidden_size"], pooling, normalize, {})
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": 300, "do_lower_case": False})
        write_golden(name, model, parameters["vocab_size"], pooling, normalize, seed + 71, f"hf/{name}.json")
        if name == "bert_odd":  # GGUF cannot say "not normalized"
            write_bert_gguf(model, HERE / "bert_odd.gguf", gguf.PoolingType.CLS)
            write_golden(name, model, parameters["vocab_size"], pooling, True, seed + 71, "bert_odd.json")


def make_qwen3() -> None:
    """Saved like Qwen3-Embedding: without an output layer, and without "model." in the names."""
    name = "qwen3_embedding"
    model = Qwen3ForCausalLM(Qwen3Config(**QWEN3, eos_token_id=257, attn_implementation="eager")).to(torch.float32).eval()
    randomize(model, 61)
    folder = HERE / "hf" / name
    shutil.rmtree(folder, ignore_errors=True)
    copy.deepcopy(model.model).to(torch.bfloat16).save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["Qwen3ForCausalLM"]
    config["matryoshka_dimensions"] = [16, 32, 42]
    write_json(folder / "config.json", config)
    write_modules(folder, QWEN3["hidden_size"], "last", True, {"query": "ab: ", "document": ""})
    write_tokenizer(folder)
    write_golden(name, model.model, 258, "last", True, 81, f"hf/{name}.json")

    def add_more(writer: gguf.GGUFWriter) -> None:
        writer.add_pooling_type(gguf.PoolingType.LAST)
        writer.add_add_eos_token(True)

    make_tiny_qwen3.write_gguf(model, "qwen3", HERE / f"{name}.gguf", add_more)


def write_tokenizer(folder: pathlib.Path) -> None:
    """Bytes, one merge, and the end token after every text."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*alphabet, "ab"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [("a", "b")]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken("<|end|>", special=True)])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A <|end|>", special_tokens=[("<|end|>", 257)])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"model_max_length": 400, "eos_token": "<|end|>"})


if __name__ == "__main__":
    make_bert()
    make_qwen3()
