#!/usr/bin/env python3
"""Runs tests of goldens on the emulated backend: of one golden per family, which the commit picks.

    tests/emulator/pick_goldens.py PROGRAM FILTER [--paths default,precise] [--families N]

FILTER selects tests of PROGRAM whose parameter is a golden or, as in models_test, a golden and a
path ("hf_qwen2_odd_default"); of those, --paths run. --families N: only N families, picked too. Over
many commits all goldens have their turn. `make emulator-soak` runs all of them.
"""
import argparse
import collections
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATHS = ('default', 'plain', 'precise')
# "hf_", "gguf_", "mmproj_": how a golden is stored. "_odd", "_128", ...: which one of its family it is.
STORED = re.compile(r'^(hf|gguf|mmproj)_')
MEMBER = re.compile(r'(_(odd|tied|yarn|dynamic|long|gguf|fp8|f32|bf16|\d+))+$')


def split(name):
    """The golden and the path, or '', of a test's parameter."""
    golden, _, path = name.rpartition('_')
    return (golden, path) if path in PATHS else (name, '')


def family_of(golden):
    return MEMBER.sub('', STORED.sub('', golden))


def list_tests(program, tests):
    """The tests' full names by golden and path."""
    listed = subprocess.run([program, '--gtest_list_tests', f'--gtest_filter={tests}'], check=True,
                            capture_output=True, text=True).stdout
    names = collections.defaultdict(dict)
    suite = ''
    for line in listed.splitlines():
        if line.startswith('  '):
            name = line.split()[0]
            golden, path = split(name.partition('/')[2])
            names[golden][path] = suite + name
        elif line.endswith('.'):
            suite = line
    return names


def pick(goldens, num_families, chance):
    """One golden per family."""
    families = collections.defaultdict(list)
    for golden in sorted(goldens):
        families[family_of(golden)].append(golden)
    chosen = sorted(families)
    if num_families is not None:
        chosen = chance.sample(chosen, num_families)
    return [chance.choice(families[family]) for family in chosen]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('program')
    parser.add_argument('filter')
    parser.add_argument('--paths', default='default,precise')
    parser.add_argument('--families', type=int)
    args = parser.parse_args()
    names = list_tests(args.program, args.filter)
    commit = subprocess.run(['git', 'rev-parse', 'HEAD'], cwd=ROOT, capture_output=True,
                            text=True).stdout.strip()
    picked = pick(names, args.families, random.Random(commit))
    wanted = {'', *args.paths.split(',')}
    chosen = [name for golden in picked for path, name in names[golden].items() if path in wanted]
    if not chosen:
        raise SystemExit(f'pick_goldens.py: {args.program} has no test of a golden in {args.filter}')
    print(f'{len(picked)} of {len(names)} goldens: {", ".join(picked)}', flush=True)
    return subprocess.run([args.program, f'--gtest_filter={":".join(chosen)}']).returncode


if __name__ == '__main__':
    sys.exit(main())
