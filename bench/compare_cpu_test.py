#!/usr/bin/env python3
"""Tests compare_cpu.py with scripts as engines."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent

# Prints like `tokamak bench latency --json`: 400 tok/s for prompts, 100 per stream of output.
TOKAMAK = '''#!/bin/sh
case "$1" in --version) echo "tokamak 9.9"; exit ;; esac
while [ $# -gt 0 ]; do [ "$1" = --batch ] && batch=$2; [ "$1" = --isa ] && isa=$2; shift; done
[ "${WANTED_ISA:-auto}" = "$isa" ] || { echo "error: isa $isa" >&2; exit 1; }
echo "{\\"prompt_tok_s\\": 400, \\"output_tok_s\\": $((100 * batch))}"
'''
# llama-bench: 200 tok/s, more with some settings; Q8_0 fails.
BENCH = '''#!/bin/sh
rate=200
case "$*" in *Q8_0*) echo "failed to load model" >&2; exit 1 ;; esac
case "$*" in *IQ4_NL*"-fa 1"*) rate=250 ;; esac
case "$*" in *"-rtr 1"*) rate=$((rate * 2)) ;; esac
case "$*" in *"--repack 0"*) rate=300 ;; esac
echo "[{\\"avg_ts\\": $rate.5}]"
'''
BATCHED = '''#!/bin/sh
echo "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |"
echo "|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|"
echo "|   128 |    128 |    8 |   2048 |    1.000 |  1024.00 |    2.560 |   400.00 |    3.560 |   575.28 |"
'''


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.script('tokamak', TOKAMAK)
        for name in ('llama.cpp', 'llama.cpp-avx2', 'ik_llama.cpp'):
            self.script(f'peers/{name}/bin/llama-bench', BENCH)
            self.script(f'peers/{name}/bin/llama-batched-bench', BATCHED)

    def script(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def compare(self, *args, **env):
        done = subprocess.run(
            [sys.executable, HERE / 'compare_cpu.py', '--tokamak', self.root / 'tokamak', '--model',
             self.root / 'Some.Q4_1.gguf', '--peers', self.root / 'peers', '--json',
             self.root / 'log', *args],
            capture_output=True, text=True, check=False, env=dict(os.environ, **env))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_best_of_their_settings_counts(self):
        table = self.compare('--rows', 'prompt,eight', '--runs', '2', '--ik', str(self.root))
        rows = [line for line in table.splitlines() if line.startswith('| ')]
        self.assertIn('| 400 (400–400) Q4_1 | 250 (250–250) IQ4_NL fa 1 | '
                      '500 (500–500) IQ4_NL fa 1 rtr 1 | 0.80× |', rows[1])
        self.assertIn('| 800 (800–800) Q4_1 | 400 (400–400)', rows[2])
        self.assertTrue(rows[2].endswith('| 2.00× |'), rows[2])
        self.assertIn('tokamak 9.9', table)

        log = [json.loads(line) for line in (self.root / 'log').read_text().splitlines()]
        ours = [e for e in log if e.get('row') == 'prompt' and e['engine'] == 'tokamak']
        self.assertEqual([e['run'] for e in ours], [1, 2])
        self.assertEqual(len([e for e in log if 'result' in e]), 6)

    def test_all_run_the_same_file(self):
        table = self.compare('--rows', 'prompt-256,eight-32', '--runs', '1', '--same-file', '--isa', 'amx,avx2',
                             WANTED_ISA='amx')
        rows = [line for line in table.splitlines() if line.startswith('| ')]
        self.assertIn('| tokamak amx | tokamak avx2 | llama.cpp | ratio |', rows[0])
        self.assertIn('| 400 (400–400) Q4_1 | – | 300 (300–300) Q4_1 fa 1 repack 0 | 1.33× / – |', rows[1])
        self.assertIn('| 2.00× / – |', rows[2])

    def test_avx2_alone_is_forced(self):
        table = self.compare('--rows', 'one', '--runs', '1', '--avx2', WANTED_ISA='avx2')
        self.assertIn('0.40×', table)

    def test_an_engine_that_fails_leaves_a_gap(self):
        self.script('tokamak', '#!/bin/sh\necho oops >&2\nexit 3\n'.replace(
            'echo', '[ "$1" = --version ] && echo v && exit\necho'))
        table = self.compare('--rows', 'one', '--runs', '1')
        self.assertIn('| – | 250 (250–250) IQ4_NL fa 1 | – |', table)


if __name__ == '__main__':
    unittest.main()
