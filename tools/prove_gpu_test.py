"""Tests of prove_gpu.py with scripts in place of a build's programs. Run: python3 -m unittest
discover tools -p '*_test.py'"""
import contextlib
import io
import os
import pathlib
import shutil
import sys
import tarfile
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(__file__))
import prove_gpu

BENCH = ('{"model": "m", "requests": 4, "batch": 2, "output_tok_s": 123.4, "prompt_tok_s": 5678.9, '
         '"ttft_ms": {"p50": 1.5}, "tpot_ms": {"p50": 0.25}}')
# As compute-sanitizer prints them, shortened.
HAZARD = '''========= Error: Potential RAW hazard detected at __shared__ 0x410 in block (0,0,0) :
=========     Write Thread (0,0,0) at void tokamak::cuda::{0}<(int)128>(CUtensorMap_st)+0x1a30
=========     Read Thread (130,0,0) at void tokamak::cuda::{0}<(int)128>(CUtensorMap_st)+0x1b00
=========     Current Value : 1
=========
'''
RACE = '''========= Error: Race reported between Write access at {0}(Args)+0x1a30
=========     and Read access at {0}(Args)+0x1b00 [16 hazards]
=========
'''
SUMMARY = '========= RACECHECK SUMMARY: {0} hazards displayed ({0} errors, 0 warnings)\n'


class Checks(unittest.TestCase):
    def test_known_races_pass_and_others_do_not(self):
        wide = HAZARD.format('WideAttentionKernel')
        self.assertEqual(prove_gpu.no_races(SUMMARY.format(0)), '')
        self.assertEqual(prove_gpu.no_races(2 * wide + SUMMARY.format(2)), '')
        race = RACE.format('WideAttentionKernel')
        self.assertEqual(prove_gpu.no_races(race + SUMMARY.format(1)), '')
        self.assertEqual(prove_gpu.no_races(wide + RACE.format('NormKernel') + SUMMARY.format(2)),
                         'hazards in NormKernel')

    def test_hazards_that_are_not_shown_do_not_pass(self):
        shown = HAZARD.format('WideAttentionKernel')
        self.assertEqual(prove_gpu.no_races(shown + SUMMARY.format(5)),
                         '5 hazards, 1 of them known')
        self.assertEqual(prove_gpu.no_races(shown), 'racecheck did not end')

    def test_memcheck_must_end_without_errors(self):
        self.assertEqual(prove_gpu.no_errors('========= ERROR SUMMARY: 0 errors\n'), '')
        self.assertEqual(prove_gpu.no_errors('========= ERROR SUMMARY: 1 error\n'), '1 errors')
        self.assertEqual(prove_gpu.no_errors('[  PASSED  ] 2 tests.\n'),
                         'compute-sanitizer did not end')

    def test_skipped_tests_do_not_pass(self):
        self.assertEqual(prove_gpu.no_gpu('[  SKIPPED ] no CUDA backend here: no driver\n'),
                         'skipped: no CUDA backend here')
        self.assertIn('skipped', prove_gpu.no_gpu('[  PASSED  ] 0 tests.\n'))
        self.assertEqual(prove_gpu.no_gpu('[  PASSED  ] 2 tests.\n'), '')


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.build = self.folder / 'build'
        self.out = self.folder / 'out'
        for name in prove_gpu.FILES:
            self.write(name, 'echo "[  PASSED  ]" $*')
        self.write(prove_gpu.TOKAMAK, f"echo '{BENCH}'; echo loaded >&2")
        (self.build / 'CMakeCache.txt').write_text(
            f'CMAKE_HOME_DIRECTORY:INTERNAL={self.folder}/far/away\n')

    def write(self, name, script):
        path = self.build / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\n{script}\n')
        path.chmod(0o755)

    def run_tool(self, *words):
        output = io.StringIO()
        with mock.patch.object(sys, 'argv', ['prove_gpu.py', *map(str, words)]):
            with contextlib.redirect_stdout(output):
                code = prove_gpu.main()
        return code, output.getvalue()

    def run_parts(self, *words):
        return self.run_tool('run', self.build, self.out, *words)

    def test_chosen_parts_and_groups_pass(self):
        code, output = self.run_parts('ops', 'bench-qwen3-0.6b', 'invariance', '--requests', '30')
        self.assertEqual(code, 0, output)
        summary = (self.out / 'summary.txt').read_text()
        self.assertEqual(summary.count(' passed '), 4)
        self.assertIn('123 output tok/s', summary)
        self.assertEqual((self.out / 'bench.jsonl').read_text().count('\n'), 3)
        self.assertEqual((self.out / 'bench-qwen3-0.6b.txt').read_text(), 'loaded\n' * 3)
        self.assertIn('--kernels new --types BF16 --requests 30',
                      (self.out / 'invariance.txt').read_text())
        self.assertIn('--kernels plain --types BF16 --requests 10',
                      (self.out / 'invariance-plain.txt').read_text())

    def test_a_part_that_fails_is_named_and_the_others_go_on(self):
        self.write(prove_gpu.OPS, 'exit 3')
        self.write(prove_gpu.MODELS, 'echo "no CUDA backend here: no driver"')
        code, output = self.run_parts('correct')
        self.assertEqual(code, 1)
        self.assertIn('ops: exit code 3', output)
        self.assertIn('models: skipped: no CUDA backend here', output)
        self.assertEqual((self.out / 'summary.txt').read_text().count(' passed '), 5)

    def test_time_is_bounded(self):
        self.write(prove_gpu.RUNNER, 'sleep 100 & wait')
        code, output = self.run_parts('runner', 'bench-kernels', '--minutes', '0.05')
        self.assertEqual(code, 1)
        self.assertIn('runner: out of time', output)
        self.assertIn('bench-kernels: not begun: no time left', output)

    def test_results_before_the_end_of_the_time_count(self):
        self.write(prove_gpu.TOKAMAK, f"echo '{BENCH}'; printf '{BENCH[:30]}'; exit 1")
        code, output = self.run_parts('bench-qwen3-0.6b')
        self.assertEqual(code, 1)
        self.assertIn('bench-qwen3-0.6b: exit code 1', output)
        self.assertEqual(output.count('123 output tok/s'), 1)

    def test_sanitizers_are_needed_only_for_their_parts(self):
        with mock.patch.object(prove_gpu, 'CUDA', '/nonexistent'):
            with mock.patch.dict(os.environ, PATH='/usr/bin:/bin'):
                code, output = self.run_parts('memcheck-kernels', 'kernels')
        self.assertEqual(code, 1)
        self.assertIn('memcheck-kernels: no compute-sanitizer here', output)
        self.assertIn('kernels: passed', output)

    def test_goldens_are_found_where_sources_were_compiled(self):
        self.write(prove_gpu.MODELS, f'ls {self.folder}/far/away/tests/golden > /dev/null')
        code, output = self.run_parts('models')
        self.assertEqual(code, 0, output)
        self.assertFalse(os.path.lexists(self.folder / 'far/away'))

    def test_what_is_missing_or_unknown_is_named(self):
        (self.build / prove_gpu.STEADY).unlink()
        with self.assertRaisesRegex(SystemExit, prove_gpu.STEADY):
            self.run_parts('steady')
        with self.assertRaisesRegex(SystemExit, 'no part or group "opps"'):
            self.run_parts('opps')
        with self.assertRaisesRegex(SystemExit, f'ninja -C .* {prove_gpu.STEADY}'):
            self.run_tool('pack', self.build, self.folder / 'proof.tar.xz')

    def test_an_archive_has_programs_and_libraries(self):
        for name in prove_gpu.FILES[:2]:
            shutil.copy('/bin/bash', self.build / name)  # needs libtinfo
        archive = self.folder / 'proof.tar.xz'
        with mock.patch.object(prove_gpu, 'FILES', prove_gpu.FILES[:2]):
            code, output = self.run_tool('pack', self.build, archive)
        self.assertEqual(code, 0, output)
        with tarfile.open(archive) as packed:
            names = packed.getnames()
        self.assertEqual(names, ['CMakeCache.txt', *prove_gpu.FILES[:2], 'lib/libtinfo.so.6'])

    def test_every_part_is_listed(self):
        code, output = self.run_tool('list')
        self.assertEqual(code, 0)
        for part in prove_gpu.parts():
            self.assertIn(f'{part.name:<22}{part.group}', output)


if __name__ == '__main__':
    unittest.main()
