#!/usr/bin/env python3
"""Runs transformers' beam search, on models that are tables of random numbers and on tiny checkpoints.

Writes beams.txt, read by src/engine/beam_search_test.cc. A line with a table:
  table VOCAB : VOCAB x VOCAB numbers, then 32 x VOCAB numbers; all in units of 1e-5
The logits behind a token at position p are row `token` of the first plus row p % 32 of the second. Then the cases with
this table, and their results, best first:
  case TOKEN WIDTH LENGTH_PENALTY EARLY_STOPPING MAX_TOKENS : END_TOKENS
  SCORE : TOKENS                    (WIDTH lines)
TOKEN is the prompt.

Writes beam_answers.txt, read by src/local/beam_answers_test.cc, with the checkpoints in float32:
  model DIRECTORY
  case WIDTH LENGTH_PENALTY EARLY_STOPPING MAX_TOKENS MIN_TOKENS REPETITION_PENALTY : PROMPT : END_TOKENS
  SCORE : TOKENS                    (WIDTH lines)
Leaves out cases in which float64 gives other tokens, because rounding decides there.

  python3 tests/golden/make_beam_goldens.py                                  (versions: requirements.txt)
"""
import pathlib
import random

import torch
import transformers
from transformers.modeling_outputs import CausalLMOutput

HERE = pathlib.Path(__file__).parent
NUM_POSITIONS = 32
CHECKPOINTS = ["hf_llama_f32", "hf/gemma2_odd", "hf/qwen2_moe_odd"]


class TableConfig(transformers.PreTrainedConfig):
    model_type = "table"


class TableModel(transformers.PreTrainedModel, transformers.GenerationMixin):
    """Gives logits that depend on the last token and its position alone."""
    config_class = TableConfig

    def __init__(self, config, follows, positions):
        super().__init__(config)
        self.follows, self.positions = torch.tensor(follows), torch.tensor(positions)
        self.unused = torch.nn.Linear(1, 1)  # a model has parameters
        self.post_init()

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **_):
        return {"input_ids": input_ids}

    def forward(self, input_ids, attention_mask=None, return_dict=True):
        places = torch.arange(input_ids.shape[1]) % NUM_POSITIONS
        return CausalLMOutput(logits=self.follows[input_ids] + self.positions[places])


def table(vocab, rows, scale):
    return [[round(random.gauss(0, scale) * 100000) for _ in range(vocab)] for _ in range(rows)]


def scaled(rows):
    return [[x / 100000 for x in row] for row in rows]


def search(model, prompt, width, penalty, early, max_tokens, ends, **others):
    """Returns the answers and their scores."""
    pad = model.config.vocab_size
    config = transformers.GenerationConfig(
        num_beams=width, num_return_sequences=width, length_penalty=penalty, early_stopping=early,
        max_new_tokens=max_tokens, eos_token_id=ends or None, pad_token_id=pad, do_sample=False,
        return_dict_in_generate=True, output_scores=True, **others)
    ids = torch.tensor([prompt])
    result = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    return [(score.item(), [t for t in answer.tolist()[len(prompt):] if t != pad])
            for answer, score in zip(result.sequences, result.sequences_scores)]


def write_answers(file, answers):
    for score, tokens in answers:
        print(f"{score:.9g} :", *tokens, file=file)


def write_tables(file):
    for vocab, scale in [(6, 1.0), (11, 0.5), (16, 1.0), (20, 2.0), (33, 1.0), (33, 0.3)]:
        follows, positions = table(vocab, vocab, scale), table(vocab, NUM_POSITIONS, scale)
        print(f"table {vocab} :", *(x for row in follows + positions for x in row), file=file)
        model = TableModel(TableConfig(vocab_size=vocab), scaled(follows), scaled(positions)).eval()
        for width in (2, 3, 4, 10):
            for early in (False, True, "never"):
                for penalty in (-0.5, 0.0, 0.6, 1.0, 1.4):
                    # Otherwise the first step cannot fill the beams, and transformers goes on with copies.
                    num_ends = random.randint(0, min(3, max(0, vocab - width)))
                    ends = random.sample(range(vocab), num_ends)
                    max_tokens = random.choice([1, 2, 5, 12, 25])
                    if width + num_ends > vocab and max_tokens == 1:
                        continue
                    token = random.randrange(vocab)
                    print("case", token, width, penalty, early, max_tokens, ":", *ends, file=file)
                    write_answers(file, search(model, [token], width, penalty, early, max_tokens, ends,
                                               use_cache=False))


def write_models(file):
    for name in CHECKPOINTS:
        print("model", name, file=file)
        single, double = (transformers.AutoModelForCausalLM.from_pretrained(
            HERE / name, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()
                          for dtype in (torch.float32, torch.float64))
        for model in (single, double):
            model.generation_config = transformers.GenerationConfig()  # without the checkpoint's end tokens
        vocab = single.config.vocab_size
        for width in (2, 4, 10):
            for early in (False, True, "never"):
                for penalty in (0.6, 1.0, 1.4):
                    prompt = [random.randrange(vocab) for _ in range(random.randint(1, 70))]
                    max_tokens, min_tokens = random.randint(8, 24), random.choice([0, 0, 5])
                    # Tokens that answers have, so that some end there.
                    likely = {token for _, answer in search(single, prompt, width, penalty, early, max_tokens, [])
                              for token in answer}
                    ends = random.sample(sorted(likely), min(len(likely), random.randint(0, 4)))
                    repetition = random.choice([1.0, 1.0, 1.3])
                    others = dict(repetition_penalty=repetition, min_new_tokens=min_tokens or None)
                    answers, exact = (search(model, prompt, width, penalty, early, max_tokens, ends, **others)
                                      for model in (single, double))
                    if [tokens for _, tokens in answers] != [tokens for _, tokens in exact]:
                        continue
                    print("case", width, penalty, early, max_tokens, min_tokens, repetition, ":", *prompt, ":", *ends,
                          file=file)
                    write_answers(file, answers)


def main():
    random.seed(28)
    with open(HERE / "beams.txt", "w") as file:
        write_tables(file)
    with open(HERE / "beam_answers.txt", "w") as file:
        write_models(file)


if __name__ == "__main__":
    main()
