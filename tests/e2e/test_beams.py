#!/usr/bin/env python3
"""Beam search on the command line and over HTTP, with the goldens of make_beam_goldens.py."""
import json
import unittest

import support

GOLDEN = support.ROOT / 'tests' / 'golden'
MODEL = str(GOLDEN / 'hf_llama_f32')


def cases():
    """The first model's cases: fields of a request, and the answers' scores and tokens."""
    lines = (GOLDEN / 'beam_answers.txt').read_text().split('\nmodel')[0].splitlines()
    found = []
    for line in lines[1:]:
        head, *lists = line.split(':')
        if line.startswith('case'):
            _, width, penalty, early, max_tokens, min_tokens, repetition = head.split()
            found.append(({
                'prompt': [int(x) for x in lists[0].split()], 'use_beam_search': True, 'n': int(width),
                'length_penalty': float(penalty), 'early_stopping': {'True': True, 'False': False}.get(early, early),
                'max_tokens': int(max_tokens), 'min_tokens': int(min_tokens), 'repetition_penalty': float(repetition),
                'stop_token_ids': [int(x) for x in lists[1].split()], 'ignore_eos': True}, []))
        else:
            fields, answers = found[-1]
            tokens = [int(x) for x in lists[0].split()]
            stops = tokens[-1] in fields['stop_token_ids']
            answers.append((float(head), tokens[:-1] if stops else tokens))
    return found


class Beams(unittest.TestCase):
    def test_the_command_finds_what_transformers_finds(self):
        for fields, answers in cases()[::8]:
            ids = ','.join(map(str, fields['prompt']))
            ends = ','.join(map(str, fields['stop_token_ids']))
            out = support.tokamak(
                'run', MODEL, '--precise', '--json', '--ignore-eos', '--token-ids', ids,
                '--num-beams', str(fields['n']), '-n', str(fields['n']),
                '--length-penalty', str(fields['length_penalty']),
                '--early-stopping', str(fields['early_stopping']).lower(),
                '--max-tokens', str(fields['max_tokens']), '--min-tokens', str(fields['min_tokens']),
                '--repetition-penalty', str(fields['repetition_penalty']),
                *(['--stop-token-ids', ends] if ends else [])).stdout
            got = [json.loads(line) for line in out.splitlines()]
            self.assertEqual([answer['token_ids'] for answer in got], [tokens for _, tokens in answers])
            for answer, (score, _) in zip(got, answers):
                self.assertAlmostEqual(answer['beam_score'], score, delta=1e-4 * max(1, abs(score)))

    def test_the_command_says_what_does_not_go_together(self):
        for args, words in ((['--num-beams', '2', '--temperature', '1'], '--temperature'),
                            (['--length-penalty', '2'], '--num-beams'),
                            (['--num-beams', '2', '-n', '3'], '--num-beams: must be in [3, 128]')):
            failed = support.tokamak('run', MODEL, '--token-ids', '5', *args, check=False)
            self.assertEqual(failed.returncode, 2, args)
            self.assertIn(words, failed.stderr)

    def test_the_server_finds_what_transformers_finds(self):
        with support.Server('--precise', model=MODEL) as server:
            for fields, answers in cases()[1::8]:
                status, got = server.request('/v1/completions', fields | {'return_token_ids': True})
                self.assertEqual(status, 200, got)
                self.assertEqual([choice['token_ids'] for choice in got['choices']],
                                 [tokens for _, tokens in answers])
                best = server.request('/v1/completions', fields | {
                    'return_token_ids': True, 'n': 1, 'best_of': fields['n']})[1]['choices']
                self.assertEqual([choice['token_ids'] for choice in best], [answers[0][1]])

    def test_the_sums_of_logprobs_rank_the_answers(self):
        with support.Server('--precise', model=MODEL) as server:
            fields = {'prompt': [5, 6, 7], 'max_tokens': 12, 'min_tokens': 12, 'use_beam_search': True, 'n': 3,
                      'best_of': 4, 'logprobs': 2}
            choices = server.request('/v1/completions', fields)[1]['choices']
            sums = [sum(choice['logprobs']['token_logprobs']) for choice in choices]
            self.assertEqual(sums, sorted(sums, reverse=True))
            self.assertGreater(sums[0], sums[2])
            for choice in choices:
                logprobs = choice['logprobs']
                self.assertEqual(len(logprobs['token_logprobs']), 12)
                for chosen, top in zip(logprobs['token_logprobs'], logprobs['top_logprobs']):
                    self.assertIn(len(top), (1, 2))  # equal texts are one
                    self.assertGreaterEqual(max(top.values()), chosen)

    def test_a_stream_has_one_chunk_for_each_answer(self):
        with support.Server(model=str(GOLDEN / 'llama_tied.gguf')) as server:
            fields = {'prompt': [5, 6, 7], 'max_tokens': 12}
            extra = {'use_beam_search': True, 'best_of': 4, 'early_stopping': True}
            whole = server.request('/v1/completions', {**fields, **extra, 'n': 3})[1]
            chunks = list(server.client().completions.create(model='', n=3, stream=True, extra_body=extra, **fields))
            texts = {chunk.choices[0].index: chunk.choices[0].text for chunk in chunks if chunk.choices}
            self.assertEqual(sum(1 for chunk in chunks if chunk.choices), 3)
            self.assertEqual([texts[i] for i in range(3)], [choice['text'] for choice in whole['choices']])
            self.assertNotEqual(texts[0], '')

    def test_the_server_refuses_what_cannot_be(self):
        with support.Server('--max-seqs', '4', model=MODEL) as server:
            for more, param in (({'temperature': 0.5}, 'temperature'), ({'logprobs': 21}, 'logprobs'),
                                ({'best_of': 1, 'n': 2}, 'best_of'), ({'n': 129}, 'n'),
                                ({'best_of': 5}, 'use_beam_search'), ({'max_tokens': 0}, 'max_tokens'),
                                ({'length_penalty': 101}, 'length_penalty')):
                status, answer = server.request('/v1/completions', {
                    'prompt': [5], 'use_beam_search': True, **more})
                self.assertEqual((status, answer['error']['param']), (400, param), answer)


if __name__ == '__main__':
    support.main(needs_model=False)
