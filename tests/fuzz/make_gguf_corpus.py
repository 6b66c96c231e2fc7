#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/gguf_fuzz/: small GGUF files to start fuzzing from.

Made with gguf 0.19.0, numpy 2.4.6, Python 3.11. Usage: make_gguf_corpus.py [DIRECTORY]
"""
import pathlib
import struct
import sys

import gguf
import numpy as np

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
         "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "IQ2_XXS", "I32"]


def write(path, fill, architecture="llama"):
    writer = gguf.GGUFWriter(str(path), architecture)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def metadata(writer):
    for kind in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{kind}")(kind, 7)
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.5)
    writer.add_bool("bool", True)
    writer.add_string("string", "text")
    writer.add_array("strings", ["a", "", "bc"])
    writer.add_array("ints", [1, 2, 3])
    writer.add_array("floats", [1.0, 2.0])
    writer.add_array("bools", [True, False])
    writer.add_array("nested", [[1, 2], [3, 4]])


def tensors(writer):
    writer.add_custom_alignment(8)
    for name in TYPES:
        qtype = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[qtype]
        if elements == 256 and name not in ("Q2_K", "Q6_K", "IQ2_XXS"):
            continue
        data = np.arange(size, dtype=np.uint8).reshape(1, size)
        writer.add_tensor(name, data, raw_dtype=qtype)


def llama(writer):
    writer.add_context_length(32)
    writer.add_embedding_length(4)
    writer.add_block_count(1)
    writer.add_feed_forward_length(4)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(2)
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(2.0)
    writer.add_token_list(["a", "b"])
    for name, shape in (("token_embd.weight", (2, 4)), ("output_norm.weight", (4,)),
                        ("blk.0.attn_q.weight", (4, 4)), ("blk.0.attn_q.bias", (4,))):
        writer.add_tensor(name, np.ones(shape, np.float32))


def image_token(writer, sections=()):
    """What a text model has for images."""
    writer.add_token_list(["a", "<|image_pad|>"])
    writer.add_token_types([1, 3])
    writer.add_context_length(32)
    writer.add_embedding_length(4)
    writer.add_block_count(1)
    writer.add_feed_forward_length(4)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    if sections:
        writer.add_rope_dimension_sections(sections)
    writer.add_tensor("token_embd.weight", np.ones((2, 4), np.float32))


def mmproj(projector, frames):
    def fill(writer):
        writer.add_clip_has_vision_encoder(True)
        writer.add_string("clip.projector_type", projector)
        for key, value in (("image_size", 4), ("patch_size", 2), ("embedding_length", 4), ("block_count", 1),
                           ("feed_forward_length", 6), ("projection_dim", 4), ("attention.head_count", 2)):
            writer.add_uint32(f"clip.vision.{key}", value)
        writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
        writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
        writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
        if "2.5" in projector:
            writer.add_uint32("clip.vision.n_wa_pattern", 1)
        for name, shape in (("v.class_embd", (4,)), ("v.patch_embd.weight", (4, 3, 2, 2)), ("v.blk.0.attn_q.weight", (4, 4)),
                            ("v.blk.0.attn_k.weight", (4, 4)), ("v.blk.0.attn_v.weight", (4, 4)),
                            ("v.blk.0.attn_q.bias", (4,)), ("v.blk.0.attn_k.bias", (4,)), ("v.blk.0.attn_v.bias", (4,)),
                            ("v.blk.0.ffn_up.weight", (4, 4)), ("v.blk.0.ffn_down.weight", (4, 4)),
                            ("mm.0.weight", (4, 4)), ("mm.2.weight", (4, 4))):
            writer.add_tensor(name, np.ones(shape, np.float32))
        if frames == 2:
            writer.add_tensor("v.patch_embd.weight.1", np.ones((4, 3, 2, 2), np.float32))
    return fill


def write_pair(path, architecture, sections, projector, frames):
    """A text model and its image encoder, one after the other."""
    write(path, lambda writer: image_token(writer, sections), architecture)
    text = path.read_bytes()
    write(path, mmproj(projector, frames), "clip")
    path.write_bytes(text + path.read_bytes())


def part(number):
    def fill(writer):
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", 2)
        writer.add_tensor(f"t{number}", np.ones(4, np.float32))
    return fill


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                       else pathlib.Path(__file__).parent / "corpus" / "gguf_fuzz")
    out.mkdir(parents=True, exist_ok=True)
    for name, fill in (("metadata", metadata), ("tensors", tensors), ("llama", llama),
                       ("part0", part(0)), ("part1", part(1))):
        write(out / name, fill)
    (out / "split").write_bytes((out / "part0").read_bytes() + (out / "part1").read_bytes())
    (out / "part0").unlink()
    (out / "part1").unlink()
    write_pair(out / "mmproj_llava", "llama", (), "mlp", 1)
    write_pair(out / "mmproj_qwen2", "qwen2vl", (1, 1, 0, 0), "qwen2vl_merger", 2)
    write_pair(out / "mmproj_qwen2_5", "qwen2vl", (1, 1, 0, 0), "qwen2.5vl_merger", 2)
    three = (out / "llama").read_bytes()
    (out / "version2").write_bytes(three[:4] + struct.pack("<I", 2) + three[8:])
    (out / "bigendian").write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))


main()
