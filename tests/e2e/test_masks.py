#!/usr/bin/env python3
"""Masks over a real vocabulary beside llguidance's, token by token.

llguidance draws answers from its own masks, and tokamak follows them. TOKAMAK_MASK_SEED: for other
answers than the same ones every time.
"""

import json
import os
import pathlib
import re
import sys
import unittest

import support

sys.path += [str(support.ROOT / 'bench'), str(support.ROOT / 'tests' / 'golden')]
try:
    import compare_grammars
    import llguidance
    import mask_schemas
    import numpy as np
except ImportError:
    print('llguidance, gguf or numpy is not there; run scripts/setup-test-refs')
    sys.exit(support.SKIPPED)

REFS = pathlib.Path(os.environ.get('TOKAMAK_TEST_REFS') or support.cache_dir() / 'test-refs')
PROBE = os.environ.get('TOKAMAK_GRAMMAR_PROBE',
                       str(support.ROOT / 'build' / 'bench' / 'grammar_probe'))
ANSWERS = 2  # of each schema
TOKENS = 40  # of each answer, at most
SEED = int(os.environ.get('TOKAMAK_MASK_SEED', '1'))


def allows_more(schema, text):
    """Whether tokamak rightly allows more after `text`."""
    escape = (len(text) - len(text.rstrip(b'\\'))) % 2 == 1  # may be \\uXXXX, and "/" may be \\/
    # A whole number in a constant may be written with .0.
    return escape or 'const' in schema and re.search(rb'\[ ?1$', text)


class Masks(unittest.TestCase):

    def test_are_those_of_llguidance(self):
        path = REFS / 'llama.cpp' / 'models' / 'ggml-vocab-qwen2.gguf'
        token_bytes, eos = compare_grammars.read_vocabulary(path)
        tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(compare_grammars.Tokenizer(token_bytes, eos)))
        # Whether an answer is complete is not part of a grammar's mask. RFC 8259 allows the escapes
        # and the character that llguidance does not.
        ignored = np.array([t == eos or bool(compare_grammars.EXPLAINED.search(token))
                            for t, token in enumerate(token_bytes)])
        drawn, requests = [], []
        for number, schema in enumerate(mask_schemas.SCHEMAS):
            for answer in range(ANSWERS):
                seed = SEED + ANSWERS * number + answer
                text = json.dumps(schema)
                error, tokens, masks, _ = compare_grammars.draw_answer(tokenizer, eos, text, TOKENS,
                                                                       seed)
                self.assertFalse(error, text)
                drawn.append((schema, tokens, masks))
                requests.append({'schema': text, 'tokens': tokens,
                                 'whitespace': compare_grammars.WHITESPACE})
        answers, ours, _ = compare_grammars.follow(PROBE, token_bytes, requests)
        at = equal = 0
        for (schema, tokens, masks), answer in zip(drawn, answers):
            self.assertNotIn('error', answer, schema)
            self.assertEqual(len(answer['mask_us']), len(masks), (schema, tokens))
            for i, theirs in enumerate(masks):
                differing = compare_grammars.tokens_of(ours[at + i] ^ theirs[:ours.shape[1]])
                differing = [int(t) for t in differing if t < len(ignored) and not ignored[t]]
                text = b''.join(token_bytes[t] for t in tokens[:i])
                if schema.get('format') == 'date' and text.endswith(b'-02-2'):
                    continue  # llguidance allows 29 February in every year
                if allows_more(schema, text):
                    theirs_alone = [t for t in differing if not ours[at + i][t // 32] >> t % 32 & 1]
                    self.assertFalse(theirs_alone, (schema, text))
                    continue
                self.assertFalse([token_bytes[t] for t in differing[:9]], (schema, text))
                equal += 1
            at += len(masks)
        self.assertGreater(equal, 500)


if __name__ == '__main__':
    support.main(needs_model=False)
