#!/usr/bin/env python3
"""Runs transformers' beam search on models that are tables of random numbers.

Writes beams.txt, read by src/engine/beam_search_test.cc. A line with a table:
  table VOCAB : VOCAB x VOCAB numbers, then 32 x VOCAB numbers; all in units of 1e-5
The logits behind a token at position p are row `token` of the first plus row p % 32 of the second. Then the cases with
this table, and their results, best first:
  case TOKEN WIDTH LENGTH_PENALTY EARLY_STOPPING MAX_TOKENS : END_TOKENS
  SCORE : TOKENS                    (WIDTH lines)
TOKEN is the prompt.

  python3 tests/golden/make_beam_goldens.py > tests/golden/beams.txt         (versions: requirements.txt)
"""
import random

import torch
import transformers
from transformers.modeling_outputs import CausalLMOutput

NUM_POSITIONS = 32


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

    def prepare_inputs_for_generation(self, input_ids, **_):
        return {"input_ids": input_ids}

    def forward(self, input_ids, **_):
        places = torch.arange(input_ids.shape[1]) % NUM_POSITIONS
        return CausalLMOutput(logits=self.follows[input_ids] + self.positions[places])


def table(vocab, rows, scale):
    return [[round(random.gauss(0, scale) * 100000) for _ in range(vocab)] for _ in range(rows)]


def scaled(rows):
    return [[x / 100000 for x in row] for row in rows]


def run(model, case):
    token, width, penalty, early, max_tokens, ends = case
    config = transformers.GenerationConfig(
        num_beams=width, num_return_sequences=width, length_penalty=penalty, early_stopping=early,
        max_new_tokens=max_tokens, eos_token_id=ends or None, pad_token_id=model.config.vocab_size, do_sample=False,
        use_cache=False, return_dict_in_generate=True, output_scores=True)
    result = model.generate(torch.tensor([[token]]), generation_config=config)
    for ids, score in zip(result.sequences, result.sequences_scores):
        yield score.item(), [t for t in ids.tolist()[1:] if t != model.config.vocab_size]


def main():
    random.seed(28)
    for vocab, scale in [(6, 1.0), (11, 0.5), (16, 1.0), (20, 2.0), (33, 1.0), (33, 0.3)]:
        follows, positions = table(vocab, vocab, scale), table(vocab, NUM_POSITIONS, scale)
        print(f"table {vocab} :", *(x for row in follows + positions for x in row))
        config = TableConfig(vocab_size=vocab)
        model = TableModel(config, scaled(follows), scaled(positions)).eval()
        for width in (2, 3, 4, 10):
            for early in (False, True, "never"):
                for penalty in (-0.5, 0.0, 0.6, 1.0, 1.4):
                    # Otherwise the first step cannot fill the beams, and transformers goes on with copies.
                    num_ends = random.randint(0, min(3, max(0, vocab - width)))
                    ends = random.sample(range(vocab), num_ends)
                    max_tokens = random.choice([1, 2, 5, 12, 25])
                    if width + num_ends > vocab and max_tokens == 1:
                        continue
                    case = (random.randrange(vocab), width, penalty, early, max_tokens, ends)
                    print("case", *case[:5], ":", *ends)
                    for score, tokens in run(model, case):
                        print(f"{score:.9g} :", *tokens)


if __name__ == "__main__":
    main()
