#!/usr/bin/env python3
"""Runs the commands as people and scripts do."""

import json
import math
import os
import subprocess
import tempfile
import unittest

import support
from support import tokamak

BENCH_FIELDS = {
    'model', 'backend', 'device', 'threads', 'batch', 'requests', 'input_tokens', 'output_tokens',
    'temperature', 'seconds', 'prompt_tok_s', 'output_tok_s', 'prompt_gmac_s', 'output_gmac_s',
    'ttft_ms', 'tpot_ms', 'weight_gb_s', 'kv_gb_s', 'drafts', 'accepted_drafts',
    'routing', 'experts_touched', 'expert_imbalance', 'ceiling', 'load_s', 'peak_rss_mb',
    'peak_device_mb', 'commit'}


class Run(unittest.TestCase):
    def run_ids(self, ids, *args):
        out = tokamak('run', support.model_path(), '--token-ids', ','.join(map(str, ids)),
                      '--temperature', '0', '--json', *args).stdout
        return json.loads(out)

    def test_answers_a_prompt(self):
        out = tokamak('run', support.model_path(), '-p',
                      'What is the capital of France? Answer in one sentence.',
                      '--temperature', '0', '--max-tokens', '20').stdout
        self.assertIn('Paris', out)

    def test_answers_a_pipe(self):
        out = tokamak('run', support.model_path(), '--temperature', '0', '--max-tokens', '20',
                      stdin='What is the capital of France? Answer in one sentence.\n').stdout
        self.assertIn('Paris', out)

    def test_takes_the_default_model(self):
        out = tokamak('run', '--raw', '-p', '1 2 3', '--temperature', '0', '--max-tokens', '2',
                      env={'TOKAMAK_MODEL': support.model_path()}).stdout
        self.assertTrue(out.startswith(' 4'), out)
        for nowhere in ('/nowhere/model.gguf', '[a,b]', '{}', '%%', '--model', "'", 'a b'):
            failed = tokamak('run', '-p', 'x', check=False, env={'TOKAMAK_MODEL': nowhere})
            self.assertEqual(failed.returncode, 1)
            self.assertIn(f'TOKAMAK_MODEL: "{nowhere}"', failed.stderr)
        with tempfile.TemporaryDirectory() as empty:
            failed = tokamak('run', '-p', 'x', check=False,
                             env={'TOKAMAK_MODEL': '', 'XDG_CACHE_HOME': empty})
        self.assertEqual(failed.returncode, 1)
        self.assertIn(empty, failed.stderr)
        self.assertIn('fetch-model', failed.stderr)

    def test_says_when_there_is_no_prompt(self):
        for args in ([], ['--raw'], ['-p', '-'], ['--json']):
            failed = tokamak('run', support.model_path(), *args, check=False, stdin='\n')
            self.assertEqual(failed.returncode, 2, args)
            self.assertRegex(failed.stderr, 'error: stdin: there is no prompt.*--prompt', args)

    def test_a_stop_string_is_taken_as_it_is(self):
        args = ['--raw', '-p', '1 2 3', '--temperature', '0', '--max-tokens', '8']
        text = tokamak('run', support.model_path(), *args).stdout
        self.assertIn('5', text)
        self.assertEqual(tokamak('run', support.model_path(), *args, '--stop', '[5]').stdout, text)
        stopped = tokamak('run', support.model_path(), *args, '--stop', '5').stdout
        self.assertEqual(stopped, text[:text.index('5')] + '\n')

    def test_continues_token_ids_in_json(self):
        answer = self.run_ids([504, 3575, 282, 4649, 314], '--max-tokens', '6', '--logprobs', '2')
        self.assertEqual(len(answer['token_ids']), 6)
        self.assertEqual(answer['finish_reason'], 'length')
        self.assertEqual(len(answer['logprobs']), 6)
        self.assertIn('Paris', answer['text'])
        for logprob, top, token in zip(answer['logprobs'], answer['top'], answer['token_ids']):
            self.assertEqual(top[0], [token, logprob])  # greedy sampling takes the best
        self.assertEqual(answer['usage']['prompt_tokens'], 5)

    def test_same_ids_whatever_the_threads_chunks_and_cache(self):
        prompt = [504, 3575, 282, 4649, 314] * 9
        plain = self.run_ids(prompt, '--max-tokens', '8')
        for args in (['--threads', '1'], ['--max-batch-tokens', '7'], ['--no-prefix-cache'],
                     ['--block-size', '5', '--num-blocks', '40']):
            other = self.run_ids(prompt, '--max-tokens', '8', *args)
            self.assertEqual(other['token_ids'], plain['token_ids'], args)
            self.assertEqual(other['logprobs'], plain['logprobs'], args)

    def test_first_token_time(self):
        args = [support.BINARY, 'run', support.model_path(), '-p', 'Hi', '--max-tokens', '1']
        best = math.inf
        for _ in range(3):
            with support.timer() as seconds:
                subprocess.run(args, check=True, stdout=subprocess.DEVNULL,
                               stdin=subprocess.DEVNULL)
            best = min(best, seconds[0])
        support.report('exec to the end of one token, best of 3 (s)', round(best, 3))

    def test_binary_size(self):
        with tempfile.NamedTemporaryFile() as stripped:
            try:
                subprocess.run(['strip', '-o', stripped.name, support.BINARY], check=True)
            except FileNotFoundError:
                self.skipTest('no strip')
            size = os.path.getsize(stripped.name) / 2**20
        support.report('stripped binary (MiB)', round(size, 1))
        if not support.SLOW:
            self.assertLessEqual(size, 25)


class OtherCommands(unittest.TestCase):
    def test_score_agrees_with_what_generation_saw(self):
        ids = [504, 3575, 282, 4649, 314, 7042, 30]
        score = json.loads(tokamak('score', support.model_path(), '--token-ids',
                                   ','.join(map(str, ids)), '--top', '3', '--json').stdout)
        self.assertEqual(score['token_ids'], ids)
        self.assertEqual(len(score['logprobs']), len(ids))
        self.assertIsNone(score['logprobs'][0])
        given = score['logprobs'][1:]
        self.assertAlmostEqual(score['mean_logprob'], sum(given) / len(given), places=6)
        self.assertAlmostEqual(score['perplexity'], math.exp(-score['mean_logprob']), places=6)
        for top in score['top'][1:]:
            self.assertEqual(len(top), 3)
            self.assertEqual(sorted((p for _, p in top), reverse=True), [p for _, p in top])
        answer = json.loads(tokamak('run', support.model_path(), '--token-ids',
                                    ','.join(map(str, ids[:4])), '--max-tokens', '1',
                                    '--temperature', '0', '--json').stdout)
        token = answer['token_ids'][0]
        self.assertEqual(dict(map(tuple, score['top'][4]))[token], answer['logprobs'][0])

    def test_score_reads_text(self):
        out = tokamak('score', support.model_path(), '--text', '-',
                      stdin='The capital of France is Paris.').stdout
        self.assertIn('perplexity', out)

    def test_score_equals_the_reference(self):
        if not support.GOLDENS.exists() or 'Q4_1' not in support.model_path():
            self.skipTest('no goldens of this model')
        golden = json.loads(support.GOLDENS.read_text())['score'][0]
        score = json.loads(tokamak('score', support.model_path(), '--token-ids',
                                   ','.join(map(str, golden['tokens'])), '--json', '--precise').stdout)
        for ours, reference in zip(score['logprobs'][1:], golden['logprobs'], strict=True):
            self.assertAlmostEqual(ours, reference, delta=1e-3)

    def test_render_shows_the_conversation_that_the_model_gets(self):
        messages = '[{"role": "user", "content": "Hi"}]'
        out = tokamak('render', support.model_path(), stdin=messages).stdout
        self.assertTrue(out.startswith('<|im_start|>system\nYou are a helpful'), out)
        self.assertTrue(out.endswith('<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'), out)
        with tempfile.NamedTemporaryFile('w') as template:
            template.write('{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}\n'
                           '{{ raise_exception("no") if x }}')
            template.flush()
            args = ['render', '--template', template.name, '--bos-token', '<s>']
            self.assertEqual(tokamak(*args, stdin=messages).stdout, '<s>Hi')
            failed = tokamak(*args, '--variables', '{"x": 1}', stdin=messages, check=False)
            self.assertEqual((failed.returncode, failed.stderr), (1, 'error: no\n'))

    def test_tokenize_gives_ids_and_pieces(self):
        args = ['tokenize', support.model_path(), '--string', 'Hello world', '--json']
        out = json.loads(tokamak(*args).stdout)
        self.assertEqual(out, {'token_ids': [19556, 905], 'pieces': ['Hello', ' world']})
        piped = tokamak('tokenize', support.model_path(), '-', '--json', stdin='Hello world')
        self.assertEqual(json.loads(piped.stdout), out)

    def test_inspect_shows_the_file(self):
        self.assertIn('llama.block_count', tokamak('inspect', support.model_path()).stdout)
        self.assertIsInstance(json.loads(tokamak('inspect', support.model_path(), '--json').stdout),
                              dict)

    def test_bench_prints_the_agreed_fields(self):
        small = tokamak('bench', 'latency', support.model_path(), '--batch', '1,2',
                        '--prompt-tokens', '8', '--output-tokens', '4', '--json').stdout
        lines = [json.loads(line) for line in small.splitlines()]
        self.assertEqual([line['batch'] for line in lines], [1, 2])
        many = tokamak('bench', 'throughput', support.model_path(), '--requests', '3', '--input',
                       '4:8', '--output', '2:4', '--json').stdout
        lines.append(json.loads(many))
        self.assertEqual(lines[-1]['requests'], 3)
        for line in lines:
            self.assertEqual(set(line), BENCH_FIELDS)
            for times in (line['ttft_ms'], line['tpot_ms']):
                self.assertEqual(set(times), {'p50', 'p90', 'p99'})
            self.assertGreater(line['output_tok_s'], 0)
            self.assertGreater(line['weight_gb_s'], 0)

    def test_bench_accepts_drafts_at_random(self):
        args = ['bench', 'latency', support.model_path(), '--batch', '1', '--prompt-tokens', '8',
                '--output-tokens', '400', '--draft-tokens', '1', '--json']
        self.assertEqual(json.loads(tokamak(*args).stdout)['drafts'], 0)
        run = json.loads(tokamak(*args, '--synthetic-acceptance', '0.7').stdout)
        # Every step has one draft. The standard deviation over 200 steps and more is 0.03.
        self.assertAlmostEqual(run['accepted_drafts'] / run['drafts'], 0.7, delta=0.15)
        self.assertAlmostEqual(run['drafts'] + run['accepted_drafts'], 400, delta=3)
        out = tokamak(*args, '--synthetic-acceptance', '1.5', check=False)
        self.assertIn('--synthetic-acceptance: must be in [0, 1]', out.stderr)

    def test_bench_routes_uniformly(self):
        model = str(support.ROOT / 'tests/golden/qwen3_moe_odd.gguf')  # 3 of 7 experts
        args = ['bench', 'latency', model, '--batch', '1,6', '--prompt-tokens', '4',
                '--output-tokens', '40', '--json', '--routing']
        busiest = {}
        for routing in ('model', 'uniform'):
            run = tokamak(*args, routing)
            lines = [json.loads(line) for line in run.stdout.splitlines()]
            self.assertEqual([line['routing'] for line in lines], [routing] * 2)
            self.assertEqual('uniformly at random' in run.stderr, routing == 'uniform')
            self.assertAlmostEqual(lines[0]['experts_touched'], 3)
            busiest[routing] = max(lines[1]['expert_imbalance'])
        # Six tokens with independent choices leave out 7 · (4/7)^6 experts on average. The standard
        # deviation over 39 steps of 3 layers is below 0.05.
        self.assertAlmostEqual(lines[1]['experts_touched'], 7 - 7 * (4 / 7) ** 6, delta=0.2)
        # 1.15 against 1.52: this model's router prefers some experts.
        self.assertLess(busiest['uniform'] + 0.2, busiest['model'])
        for wrong, said in ((['random'], 'model or uniform'), (['uniform', '--record', 'x'], 'replay')):
            failed = tokamak(*args, *wrong, check=False)
            self.assertNotEqual(failed.returncode, 0)
            self.assertIn(said, failed.stderr)
        dense = tokamak('bench', 'latency', support.model_path(), '--routing', 'uniform', check=False)
        self.assertIn('no experts', dense.stderr)
        for command in ('run', 'serve'):
            self.assertEqual(tokamak(command, model, '--routing', 'uniform', check=False).returncode, 2)

    def test_version_help_and_wrong_flags(self):
        self.assertRegex(tokamak('--version').stdout, r'^tokamak \d+\.\d+\.\d+ \(')
        for command in (['run'], ['serve'], ['bench', 'latency'], ['bench', 'throughput'],
                        ['bench', 'serve'], ['inspect'], ['score'], ['tokenize'], ['render'],
                        ['replay']):
            self.assertIn('Examples:', tokamak(*command, '--help').stdout, command)
        for args in (['nonsense'], ['run', '--no-such-flag'], ['run', '--top-p', 'x'],
                     ['run', '--token-ids', '1,x'], ['serve', '--port', '99999'],
                     ['run', '-p', 'a', '--token-ids', '1'], ['score'], ['tokenize'],
                     ['replay']):
            failed = tokamak(*args, check=False)
            self.assertEqual(failed.returncode, 2, args)
            self.assertIn('error: ', failed.stderr, args)
        for args in ([], ['bench']):
            failed = tokamak(*args, check=False)
            self.assertEqual(failed.returncode, 2, args)
            self.assertIn('Commands:\n', failed.stderr, args)

    def test_says_when_its_output_cannot_be_written(self):
        model = support.model_path()
        for args in (['--help'], ['run', '--help-all'],
                     ['run', model, '-p', 'Count.', '--ignore-eos'],
                     ['run', model, '--token-ids', '1,2', '--json', '--max-tokens', '1'],
                     ['list-models'], ['inspect', model], ['plan', model],
                     ['tokenize', model, '--string', 'a'], ['render', model],
                     ['score', model, '--token-ids', '1,2']):
            with open('/dev/full', 'w') as full:
                failed = subprocess.run([support.BINARY, *args], stdout=full, text=True,
                                        stderr=subprocess.PIPE, timeout=support.PATIENCE,
                                        input='[{"role": "user", "content": "Hi"}]')
            self.assertEqual(failed.returncode, 1, args)
            self.assertRegex(failed.stderr, r'error: stdout: (No space left|writing failed)', args)

    def test_an_unknown_command_is_named(self):
        failed = tokamak('nonsense', '--json', check=False)
        self.assertEqual(failed.returncode, 2)
        self.assertIn('"nonsense" is not a command of tokamak; its commands are run, serve', failed.stderr)

    def test_config_file(self):
        with tempfile.NamedTemporaryFile('w', suffix='.ini') as config:
            config.write('[run]\ntemperature=0\nmax-tokens=3\n')
            config.flush()
            out = tokamak('run', '--config', config.name, support.model_path(), '--token-ids',
                          '504,3575,282', '--json').stdout
        self.assertEqual(len(json.loads(out)['token_ids']), 3)


class Plan(unittest.TestCase):
    def plan(self, *args):
        return json.loads(tokamak('plan', support.model_path(), '--json', *args).stdout)

    def test_is_what_the_model_is(self):
        plan = self.plan('--context', '512', '--concurrency', '8')
        self.assertEqual(plan['architecture'], 'LlamaForCausalLM')
        self.assertEqual(plan['parameters'], 134515008)
        self.assertEqual(plan['active_parameters'], plan['parameters'])
        self.assertEqual(plan['cache_groups'], [
            {'kind': 'full', 'window': 0, 'layers': 30, 'token_bytes': 2 * 30 * 3 * 64 * 2}])
        self.assertEqual(plan['sequence_blocks'], 32)
        self.assertEqual(plan['sequences'], plan['cache_blocks'] // 32)
        self.assertEqual([d['batch'] for d in plan['decode']], [1, 2, 4, 8])

    def test_plans_for_other_hardware(self):
        here, there = self.plan(), self.plan('--device', 'h200')
        self.assertEqual(there['hardware']['name'], 'NVIDIA H200 SXM')
        self.assertGreater(there['weight_bytes'], 2 * here['weight_bytes'])  # bf16, not 4 bits
        self.assertGreater(there['decode'][0]['tok_s'], 5 * here['decode'][0]['tok_s'])
        self.assertGreater(there['decode'][3]['tok_s'], there['decode'][0]['tok_s'])
        failed = tokamak('plan', support.model_path(), '--device', 'abacus', check=False)
        self.assertEqual(failed.returncode, 1)
        self.assertIn('h200', failed.stderr)

    def test_draws_a_chart(self):
        out = tokamak('plan', support.model_path(), '--concurrency', '4').stdout
        for part in ('parameters        134.5 M', 'KV cache', 'tok/s', '█'):
            self.assertIn(part, out)


class ListModels(unittest.TestCase):
    def test_is_the_table_of_the_documentation(self):
        table = tokamak('list-models', '--markdown').stdout
        document = (support.ROOT / 'docs' / 'models.md').read_text(encoding='utf-8')
        self.assertIn(table, document, 'docs/models.md: replace its table by this')
        for line in tokamak('list-models').stdout.splitlines():
            self.assertIn(f'| `{line.split()[0]}` |', table)


if __name__ == '__main__':
    support.main()
