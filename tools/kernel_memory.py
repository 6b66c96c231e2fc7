#!/usr/bin/env python3
"""Lists how well each kernel of the CUDA backend uses memory, as docs/gpu-memory.md; or compares with
that. PROGRAM is cuda_kernels_memory, which runs the kernels in the emulator.

kernel_memory.py PROGRAM           writes the page
kernel_memory.py --check PROGRAM   exits with 1, and says why, if a kernel uses memory worse than the
                                   page says, is above a limit without a reason, or is new or gone
kernel_memory.py --places PROGRAM  prints the lines of source that cost the most above the least
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

from kernel_resources import line, natural, short_name

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / 'docs/gpu-memory.md'
KERNELS = ROOT / 'docs/gpu-kernels.md'

# The columns: which kinds of access of the program's lines they add up, and the limit.
COLUMNS = {'Loads': ((0,), 1.1), 'Stores': ((1,), 1.1), 'Boxes': ((4,), 1.1),
           'Shared': ((2, 3), 1.1), 'Bytes': (None, 1.05)}
KINDS = ('load', 'store', 'load of shared memory', 'store to shared memory', 'box')
TOLERANCE = 0.011  # two ratios that are rounded may differ by this much and be equal

# Kernels that the program does not run, and why.
NOT_RUN = {'StallKernel': 'touches no memory'}

# Why a kernel may be above a limit.
FRAGMENTS = ('the layout of tensor cores gives four lanes 16 bytes of a row, half a sector; '
             'the access that follows touches the other half')
SINGLE_BF16 = ('a lane stores each bf16 by itself, and of tiles with few tokens or with an '
               'activation a store fills a quarter of each sector; the stores that follow fill '
               'the rest')
BINS = ('filters add to bins that the logits choose, and then each thread reads two neighbouring '
        'bins of 8 bytes')
EXCEPTIONS = {
    'AcceptKernel': {'Bytes': 'a few words of each array, which do not fill a sector'},
    'AmpereFp8LatentAttentionKernel': {'Stores': FRAGMENTS},
    'AmpereFp8MmaAttentionKernel': {'Stores': FRAGMENTS},
    'AmpereGroupedGemmKernel': {'Stores': FRAGMENTS},
    'AmpereLatentAttentionKernel': {'Stores': FRAGMENTS},
    'AmpereMmaAttentionKernel': {
        'Loads': FRAGMENTS, 'Stores': FRAGMENTS,
        'Shared': 'a head of 32, or the end of one of 96, fills half of a swizzled row, so copies '
                  'of two rows meet in the same banks'},
    'AmpereSkinnyGemmKernel': {'Stores': SINGLE_BF16},
    'AttentionKernel': {
        'Shared': 'lanes load eight neighbours of a key and store them as f32 one by one. The odd '
                  'stride of keys serves the loads, which are more'},
    'ExpandedAttentionKernel': {'Loads': FRAGMENTS, 'Stores': FRAGMENTS},
    'Fp8LatentAttentionKernel': {'Stores': FRAGMENTS},
    'Fp8MmaAttentionKernel': {'Loads': FRAGMENTS, 'Stores': FRAGMENTS},
    'Fp8WideAttentionKernel': {'Loads': FRAGMENTS, 'Stores': FRAGMENTS},
    'Fp8WideLatentAttentionKernel': {'Stores': FRAGMENTS},
    'GroupedGemmKernel': {'Stores': FRAGMENTS},
    'LatentAttentionKernel': {'Stores': FRAGMENTS},
    'MmaAttentionKernel': {'Loads': FRAGMENTS, 'Stores': FRAGMENTS},
    'MmaHeadLinearKernel': {'Stores': FRAGMENTS},
    'PlainHeadLinearKernel': {
        'Stores': 'a lane copies four columns one by one, as any alignment allows'},
    'RopeKernel': {
        'Loads': 'a lane has eight neighbours of a value, or of a head with interleaved pairs, and '
                 'loads four at a time: half of each sector, then the other half',
        'Stores': 'the same'},
    'SampleKernel': {'Shared': BINS},
    'ScoreKernel': {'Shared': BINS},
    'SetSlotKernel': {'Bytes': 'one slot, which does not fill its first and last sector'},
    'SkinnyGemmKernel': {'Stores': SINGLE_BF16},
    'TiledRouterKernel': {
        'Shared': 'two lanes read each vector of weights, so a turn of eight lanes brings half of '
                  'what it could'},
    'WideAttentionKernel': {'Loads': FRAGMENTS, 'Stores': FRAGMENTS},
    'WideLatentAttentionKernel': {'Stores': FRAGMENTS},
}

TEXT = """\
# How the kernels of the CUDA backend use memory
`tools/kernel_memory.py build/src/ops/cuda/emulation/cuda_kernels_memory` writes this page, and the
test `kernel_memory` compares it with what the emulator sees. The program runs every kernel once or
more (`bench/cuda_memory.cc`), on few rows that are aligned as models have them, and the emulator
notes which addresses the 32 lanes of a warp access together. With `--places` the script prints the
lines of source that cost the most above the least.

A figure is what the kernel's accesses cost, divided by the least that the same bytes can cost. Two
figures are the best and the worst of the runs: other instances of a template, or other sizes.

| Column | Means | Limit |
|---|---|--:|
| Runs | how many there were | |
| Loads, Stores | sectors of 32 bytes of global memory that a warp's access touches, by the sectors that its bytes would fill. Atomics are stores. Copies by `cp.async` are loads | 1.1 |
| Boxes | the same for each row of a box that TMA copies | 1.1 |
| Shared | wavefronts of a warp's access to shared memory, `ldmatrix` and `stmatrix` included, by those that would do if no two of its words lay in the same bank. TMA and wgmma are left out: their swizzles avoid the same bank | 1.1 |
| Bytes | all sectors that the kernel reads or writes, each counted once as if the L2 held everything, by the bytes that the operation must move | 1.05 |

The figures are those of the code as g++ compiles it. nvcc may join neighbouring accesses of a lane
where it knows their alignment. What caches save is not counted: a sector that several accesses of a
warp touch one after the other costs each of them.

"""


class Row:
    """The figures of a kernel's runs."""
    def __init__(self):
        self.runs = 0
        self.ratios = {column: [] for column in COLUMNS}

    def add(self, run, least_bytes):
        self.runs += 1
        for column, (kinds, _) in COLUMNS.items():
            if kinds is None:
                units, least = run['bytes'], least_bytes
            else:
                units, least = (sum(run['costs'][kind][part] for kind in kinds) for part in (1, 2))
            if least:
                self.ratios[column].append(units / least)

    def cells(self):
        return (str(self.runs), *(span(ratios) for ratios in self.ratios.values()))


def span(ratios):
    """Returns "best-worst", or one figure if they are equal; "-" for none."""
    if not ratios:
        return '-'
    best, worst = f'{min(ratios):.2f}', f'{max(ratios):.2f}'
    return best if best == worst else f'{best}-{worst}'


def worst(cell):
    return 0 if cell == '-' else float(cell.split('-')[-1])


def rows(runs, name_of):
    """Returns {kernel: cells} from the lines that the program printed."""
    table = collections.defaultdict(Row)
    for run in runs:
        name = name_of(run['kernel'])
        if name not in run['least']:
            raise ValueError(f'{name} ran where {", ".join(run["least"])} was to run')
        table[name].add(run, run['least'][name])
    return {name: table[name].cells() for name in sorted(table, key=natural)}


def page(table, exceptions):
    text = TEXT + line(('Kernel', 'Runs', *COLUMNS)) + '|---' + '|--:' * (len(COLUMNS) + 1) + '|\n'
    text += ''.join(line((f'`{name}`', *cells)) for name, cells in table.items())
    text += '\n## What is above a limit\n'
    for name in sorted(exceptions, key=natural):
        for column, reason in exceptions[name].items():
            text += f'- `{name}`, {column.lower()}: {reason}\n'
    return text


def read_page(text):
    found = re.findall(rf'^\| `(\w+)` \| (\d+(?: \| [^|]+){{{len(COLUMNS)}}}) \|$', text,
                       re.MULTILINE)
    return {name: tuple(cells.split(' | ')) for name, cells in found}


def above_limits(table, exceptions):
    """Yields what is above a limit without a reason, and reasons that are not needed."""
    for name, cells in table.items():
        for (column, (_, limit)), cell in zip(COLUMNS.items(), cells[1:]):
            excused = column in exceptions.get(name, ())
            if worst(cell) > limit and not excused:
                yield f'{name}: {column} is {cell}, above {limit}, and no exception says why'
            if worst(cell) <= limit and excused:
                yield f'{name}: {column} is {cell} and needs no exception any more'
    for name in sorted(exceptions.keys() - table.keys()):
        yield f'{name}: has an exception, but is no kernel that ran'


def compare(committed, table):
    """Returns (lines about kernels that are worse, new or gone; number of others that differ)."""
    problems, harmless = [], 0
    for name in sorted({**committed, **table}, key=natural):
        was, now = committed.get(name), table.get(name)
        if was == now:
            continue
        if not was or not now:
            problems.append(f'{name}: is {"gone" if was else "new"}')
            continue
        worse = [f'{name}: {column} is {after}, not {before}'
                 for column, before, after in zip(COLUMNS, was[1:], now[1:])
                 if worst(after) > worst(before) + TOLERANCE]
        problems += worse
        harmless += not worse
    return problems, harmless


def not_run(table, listed):
    """Yields the kernels of docs/gpu-kernels.md that are missing."""
    for name in sorted(listed - table.keys() - NOT_RUN.keys()):
        yield f'{name}: bench/cuda_memory.cc does not run it'


def listed_kernels(text):
    return set(re.findall(r'^\| `(\w+)', text, re.MULTILINE))


def symbols(program):
    """Returns a function from an address to the kernel's name."""
    listing = subprocess.run(['nm', '-C', '--defined-only', program], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    names = {int(address, 16): name
             for address, name in re.findall(r'^([0-9a-f]+) [tTwW] (.*Kernel.*)$', listing,
                                             re.MULTILINE)}
    return lambda address: short_name(names[address])[0]


def trace(program):
    # Sums in order are quicker than those of tensor cores and touch the same memory.
    environment = dict(os.environ, TOKAMAK_EMULATION_SUMS='plain')
    shown = subprocess.run([program], check=True, text=True, env=environment,
                           stdout=subprocess.PIPE).stdout
    return [json.loads(text) for text in shown.splitlines()]


def print_places(program, runs, name_of):
    addresses = sorted({place[0] for run in runs for place in run['places']})
    shown = subprocess.run(['addr2line', '-s', '-e', program], check=True, text=True,
                           input='\n'.join(hex(address - 1) for address in addresses),
                           stdout=subprocess.PIPE).stdout.splitlines()
    lines = dict(zip(addresses, (text.split()[0] for text in shown)))
    costs = collections.defaultdict(lambda: [0, 0])
    for run in runs:
        for address, kind, (_, units, least) in run['places']:
            cost = costs[name_of(run['kernel']), lines[address], KINDS[kind]]
            cost[0] += units
            cost[1] += least
    for (name, place, kind), (units, least) in sorted(
            costs.items(), key=lambda item: item[1][1] - item[1][0]):
        if units > least:
            print(f'{name:28} {place:32} {kind}: {units}, least {least}')


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('program', metavar='PROGRAM')
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--places', action='store_true')
    arguments = parser.parse_args()
    runs, name_of = trace(arguments.program), symbols(arguments.program)
    if arguments.places:
        print_places(arguments.program, runs, name_of)
        return 0
    table = rows(runs, name_of)
    problems = [*above_limits(table, EXCEPTIONS),
                *not_run(table, listed_kernels(KERNELS.read_text(encoding='utf-8')))]
    harmless = 0
    if arguments.check:
        committed = PAGE.read_text(encoding='utf-8')
        worse, harmless = compare(read_page(committed), table)
        problems += worse
        if not worse and not harmless and committed != page(table, EXCEPTIONS):
            problems.append('the text of the page is not what the script writes')
    else:
        PAGE.write_text(page(table, EXCEPTIONS), encoding='utf-8')
    for problem in problems:
        print(problem)
    print(f'kernel memory: {len(table)} kernels, {len(problems)} problems, {harmless} with other '
          'differences')
    if arguments.check and (problems or harmless):
        print(f'`tools/kernel_memory.py {arguments.program}` writes the page anew')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
