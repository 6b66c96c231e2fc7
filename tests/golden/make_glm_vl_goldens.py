"""Makes tiny random checkpoints of GLM's models that see (hf/<name>/) and their goldens (hf/<name>.json), as
make_qwen_vl_goldens.py does for Qwen's.

  python3 tests/golden/make_glm_vl_goldens.py [NAME...]
"""
import json
import pathlib
import sys

from make_goldens import ODD, ODD_HEADS, WIDE, WIDE_HEADS, rope
from make_qwen_vl_goldens import keep, make
from make_vision_goldens import IMAGE_TOKEN

TEXT = dict(bos_token_id=1, eos_token_id=1)
# The released models' heads and sections in the text model.
SECTIONS_128 = rope(partial_rotary_factor=0.5, mrope_section=[8, 12, 12])
VISION_64 = dict(depth=2, num_heads=1, hidden_size=64, intermediate_size=48, patch_size=4, image_size=24)
# Name: (prefix of the classes, text_config, vision_config, other fields, grids of patches).
MODELS = {
    # Sizes that no vector width divides; four sections; grids both finer and coarser than that of the learned
    # positions.
    "glm4v_odd": ("Glm4v", ODD_HEADS | TEXT | dict(
        rope_parameters=rope(1000.0, partial_rotary_factor=0.8, mrope_section=[1, 1, 1, 1])), dict(
            depth=3, hidden_size=36, out_hidden_size=60, num_heads=3, intermediate_size=37, patch_size=3, image_size=17,
            attention_bias=True, rms_norm_eps=1e-3), dict(), [[4, 6], [2, 16], [10, 4]]),
    "glm4v_128": ("Glm4v", WIDE_HEADS | TEXT | dict(
        num_hidden_layers=1, intermediate_size=32, rope_parameters=SECTIONS_128), VISION_64 | dict(out_hidden_size=128),
        dict(tie_word_embeddings=True), [[8, 4], [2, 2], [6, 12]]),
    # Patches of three frames, and squares of 3 x 3 patches.
    "glm4v_moe_odd": ("Glm4vMoe", ODD | TEXT | dict(
        head_dim=12, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=23,
        routed_scaling_factor=1.7, n_group=3, topk_group=2, first_k_dense_replace=1, norm_topk_prob=False,
        rope_parameters=rope(1000.0, partial_rotary_factor=0.5, mrope_section=[1, 1, 1])), dict(
            depth=2, hidden_size=36, out_hidden_size=42, num_heads=3, intermediate_size=37, patch_size=3, image_size=12,
            temporal_patch_size=3, spatial_merge_size=3), dict(), [[6, 9], [3, 15], [9, 3]]),
    "glm4v_moe_128": ("Glm4vMoe", WIDE | TEXT | dict(
        hidden_size=32, num_attention_heads=2, intermediate_size=32, n_routed_experts=64, num_experts_per_tok=8,
        n_shared_experts=1, moe_intermediate_size=4, routed_scaling_factor=1.0, n_group=1, topk_group=1,
        first_k_dense_replace=1, tie_word_embeddings=False, rope_parameters=SECTIONS_128),
        VISION_64 | dict(out_hidden_size=32), dict(), [[8, 4], [2, 2], [6, 12]]),
}
# With a config.json as published; the others with that of transformers 5.
PUBLISHED = ["glm4v_128", "glm4v_moe_128"]


def as_published(directory: pathlib.Path) -> None:
    file = directory / "config.json"
    config = json.loads(file.read_text())
    text, vision = config["text_config"], config["vision_config"]
    parameters = text.pop("rope_parameters")
    text |= dict(rope_theta=parameters["rope_theta"], partial_rotary_factor=parameters["partial_rotary_factor"],
                 rope_scaling=dict(rope_type="default", mrope_section=parameters["mrope_section"]))
    moe = config["model_type"] == "glm4v_moe"
    if moe:
        text |= dict(use_qk_norm=False, image_token_id=IMAGE_TOKEN, image_start_token_id=120, image_end_token_id=121)
        del text["output_router_logits"]
    vision |= dict(model_type=config["model_type"], hidden_dropout_prob=0.0)
    for name in ("initializer_range", "rope_parameters"):
        del vision[name]
    config |= dict(torch_dtype=config.pop("dtype"))
    file.write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")


def main() -> None:
    for place, name in enumerate(MODELS):
        if not sys.argv[1:] or name in sys.argv[1:]:
            make(name, MODELS[name], place + 141, place + 730, as_published if name in PUBLISHED else keep)


if __name__ == "__main__":
    main()
