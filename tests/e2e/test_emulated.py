"""Tests the server on the emulated CUDA backend that $TOKAMAK_CUDA_LIBRARY names: it says what it
is, is used only with --device cuda, and answers do not depend on other requests."""

import concurrent.futures
import unittest

import support
from support import Server

MODEL = str(support.ROOT / 'tests' / 'golden' / 'llama_tied.gguf')
ENGINE = ['--max-seqs', '16', '--max-context', '64', '--num-blocks', '80']
EMULATED = 'cuda/emulated'


def answer(server, i):
    body = {'prompt': list(range(1 + i, 4 + 3 * i)), 'max_tokens': 8, 'ignore_eos': True,
            'temperature': i % 3 * 0.7, 'seed': i, 'logprobs': 2}
    status, response = server.request('/v1/completions', body)
    assert status == 200, response
    return response['choices']


class Emulated(unittest.TestCase):
    def test_reports_its_backend_and_other_requests_change_nothing(self):
        with Server('--device', 'cuda', *ENGINE, model=MODEL) as server:
            self.assertEqual(server.request('/health')[1]['backend'], EMULATED)
            self.assertIn(EMULATED, ''.join(server.log))
            requests = range(12)
            alone = [answer(server, i) for i in requests]
            with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
                together = list(pool.map(lambda i: answer(server, i), requests))
            self.assertEqual(together, alone)

    def test_precise_answers_are_those_of_a_precise_cpu(self):
        answers = []
        for device, backend in (('cuda', EMULATED + '/precise'), ('cpu', 'cpu/')):
            with Server('--device', device, '--precise', *ENGINE, model=MODEL) as server:
                self.assertIn(backend, server.request('/health')[1]['backend'])
                answers.append(answer(server, 3)[0])
        self.assertEqual(answers[0]['text'], answers[1]['text'])
        logprobs = [a['logprobs']['token_logprobs'] for a in answers]
        self.assertEqual(len(logprobs[0]), len(logprobs[1]))
        for on_gpu, on_cpu in zip(*logprobs):
            self.assertAlmostEqual(on_gpu, on_cpu, delta=1e-4)

    def test_precise_searches_are_those_of_a_precise_cpu(self):
        body = {'prompt': [5, 6, 7, 8, 9], 'max_tokens': 10, 'use_beam_search': True, 'n': 3, 'best_of': 4,
                'repetition_penalty': 1.2, 'return_token_ids': True}
        found = []
        for device in ('cuda', 'cpu'):
            with Server('--device', device, '--precise', *ENGINE, model=MODEL) as server:
                status, answer = server.request('/v1/completions', body)
                self.assertEqual(status, 200, answer)
                found.append([choice['token_ids'] for choice in answer['choices']])
        self.assertEqual(found[0], found[1])

    def test_embedding_models_run_on_it(self):
        goldens = support.ROOT / 'tests' / 'golden' / 'hf'
        body = {'input': [[1, 2, 3], list(range(4, 60)), [7]]}
        for model in ('qwen3_embedding', 'bert_64'):
            vectors = []
            for device in ('cuda', 'cpu'):
                with Server('--device', device, '--precise', '--max-seqs', '4', '--max-context',
                            '64', model=str(goldens / model)) as server:
                    status, answer = server.request('/v1/embeddings', body)
                    self.assertEqual(status, 200, answer)
                    vectors.append([x for row in answer['data'] for x in row['embedding']])
            for on_gpu, on_cpu in zip(*vectors, strict=True):
                self.assertAlmostEqual(on_gpu, on_cpu, delta=1e-4)

    def test_auto_does_not_choose_it(self):
        with Server('--device', 'auto', *ENGINE, model=MODEL) as server:
            self.assertIn('cpu/', server.request('/health')[1]['backend'])


if __name__ == '__main__':
    support.main(needs_model=False)
