#!/usr/bin/env python3
"""Lists what each kernel of the CUDA backend uses, as docs/gpu-kernels.md; or compares with that.

kernel_resources.py LIBRARY          writes the table
kernel_resources.py --check LIBRARY  exits with 1, and prints the rows, if a kernel spills, keeps
                                     arrays in local memory, fits an SM less often, or has lost
                                     its tensor-core instructions, and the table says otherwise;
                                     or if a kernel is new or gone. The table holds for one version
                                     of nvcc and one architecture; others are not compared.
"""
import argparse
import dataclasses
import math
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / 'docs/gpu-kernels.md'
ARCHITECTURE = 'sm_90a'
OPCODES = ('HGMMA', 'HMMA', 'UTMALDG', 'LDSM')
TENSOR_CORES = ('HGMMA', 'HMMA')

# An SM of compute capability 9.0.
REGISTERS = 65536
PARTITIONS = 4             # a warp's registers are in one of them
REGISTERS_AT_A_TIME = 256  # allocated to a warp
MAX_WARPS = 64
MAX_CTAS = 32

USAGE = re.compile(r'^ Function (\S+):\n\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)', re.MULTILINE)
COMPILER = re.compile(r'Tool Version:.*?\bV([0-9.]+)')
SECTION = re.compile(r'^(\.\S+)$', re.MULTILINE)
MAX_THREADS = re.compile(r'EIATTR_(?:MAX_THREADS|REQNTID)\n.*\n\s*Value:\s*'
                         r'(0x[0-9a-f]+) (0x[0-9a-f]+) (0x[0-9a-f]+)')
SPILL = re.compile(r'SpillRefill\s*:\s*Offset\s*:\s*0x([0-9a-f]+)')
FUNCTION = re.compile(r'^\s+Function : (\S+)$', re.MULTILINE)
INSTRUCTION = re.compile(rf'/\*([0-9a-f]+)\*/\s+(?:@!?\w+\s+)?(STL|{"|".join(OPCODES)})\b(\S*)')

PAGE = """\
# What the kernels of the CUDA backend use
`tools/kernel_resources.py build-cuda/libtokamak_cuda.so` writes this page, and `make cuda-check`
compares a build with it. Compiled by nvcc {compiler} for {architecture}.

| Column | Means |
|---|---|
| Kernel | a kernel, or one instance of a template. Instances without tensor cores and without local memory share a row, with the least and the most that they use |
| Threads | the most in a CTA, from `__launch_bounds__`; "-" without |
| Registers | per thread, at launch |
| CTAs | how many fit on an SM by registers and threads. Shared memory may allow fewer |
| Shared | bytes of static shared memory |
| Stack | bytes of local memory per thread: spills, and arrays whose index the compiler does not know |
| Spilled | bytes that a thread stores there because registers do not suffice: the stores in the machine code, each counted once |
| {opcodes} | instructions in the machine code: wgmma, `mma.sync`, loads by tensor map, `ldmatrix` |

"""
COLUMNS = ('Kernel', 'Instances', 'Threads', 'Registers', 'CTAs', 'Shared', 'Stack', 'Spilled',
           *OPCODES)


@dataclasses.dataclass
class Kernel:
    registers: int
    stack: int
    shared: int
    threads: int = 0  # 0: not known
    spilled: int = 0
    spills: set = dataclasses.field(default_factory=set)  # offsets of instructions
    counts: dict = dataclasses.field(default_factory=lambda: dict.fromkeys(OPCODES, 0))

    def ctas(self):
        """How many fit on an SM by registers and threads, or 0 if the threads are not known."""
        if not self.threads:
            return 0
        per_warp = math.ceil(self.registers * 32 / REGISTERS_AT_A_TIME) * REGISTERS_AT_A_TIME
        warps = min(MAX_WARPS, REGISTERS // PARTITIONS // per_warp * PARTITIONS)
        return min(MAX_CTAS, warps // math.ceil(self.threads / 32))

    def has_own_row(self):
        return self.stack > 0 or any(self.counts[opcode] for opcode in TENSOR_CORES)

    def figures(self):
        return (self.threads, self.registers, self.ctas(), self.shared, self.stack, self.spilled,
                *self.counts.values())


def stored_bytes(modifiers):
    """Bytes that an STL with these modifiers stores: "" is a word, ".128" are four."""
    width = re.search(r'\.[US]?(8|16|64|128)\b', modifiers)
    return int(width.group(1)) // 8 if width else 4


def parse(usage, elf, sass):
    """Returns ({mangled name: Kernel}, versions of the compiler) from what cuobjdump prints with
    --dump-resource-usage, -elf and -sass."""
    kernels = {name: Kernel(int(registers), int(stack), int(shared))
               for name, registers, stack, shared in USAGE.findall(usage)}
    parts = SECTION.split(elf)
    for name, text in zip(parts[1::2], parts[2::2]):
        kernel = kernels.get(name.removeprefix('.nv.info.'))
        if not kernel:
            continue
        threads = MAX_THREADS.search(text)
        if threads:
            kernel.threads = math.prod(int(size, 16) for size in threads.groups())
        kernel.spills = {int(offset, 16) for offset in SPILL.findall(text)}
    parts = FUNCTION.split(sass)
    for name, text in zip(parts[1::2], parts[2::2]):
        kernel = kernels[name]
        for offset, opcode, modifiers in INSTRUCTION.findall(text):
            if opcode != 'STL':
                kernel.counts[opcode] += 1
            elif int(offset, 16) in kernel.spills:
                kernel.spilled += stored_bytes(modifiers)
    return kernels, set(COMPILER.findall(elf))


def short_name(demangled):
    """Returns (name, [template arguments]) without namespaces, result and parameters."""
    name = demangled.replace('(anonymous namespace)::', '').removeprefix('void ')
    name = re.sub(r'\b[a-z]\w*::', '', name)
    found = re.match(r'(\w+)(?:<(.*?)>)?\(', name)
    if not found:
        return name, []
    return found[1], found[2].split(', ') if found[2] else []


def natural(text):
    """A key that sorts 8 before 16."""
    return [(int(part), '') if part.isdigit() else (-1, part)
            for part in re.split(r'(\d+)', text) if part]


def span(values):
    """Returns "least-most", or one figure; "-" for none."""
    least, most = min(values), max(values)
    return str(least or '-') if least == most else f'{least}-{most}'


def rows(kernels, demangle):
    """Returns {label: cells}: a row for each kernel, or for instances that share one."""
    groups = {}
    for mangled, kernel in kernels.items():
        name, arguments = short_name(demangle(mangled))
        alone = tuple(arguments) if kernel.has_own_row() else None
        groups.setdefault((name, alone), []).append((arguments, kernel))
    table = {}
    for (name, _), members in groups.items():
        choices = ['/'.join(sorted(set(values), key=natural))
                   for values in zip(*(arguments for arguments, _ in members))]
        label = f'{name}<{", ".join(choices)}>' if choices else name
        figures = zip(*(kernel.figures() for _, kernel in members))
        table[label] = (str(len(members)), *(span(values) for values in figures))
    return dict(sorted(table.items(), key=lambda row: natural(row[0])))


def line(cells):
    return f'| {" | ".join(cells)} |\n'


def page(table, compiler):
    text = PAGE.format(compiler=compiler, architecture=ARCHITECTURE, opcodes=', '.join(OPCODES))
    text += line(COLUMNS) + '|---' + '|--:' * (len(COLUMNS) - 1) + '|\n'
    return text + ''.join(line((f'`{label}`', *cells)) for label, cells in table.items())


def read_page(text):
    """Returns (rows, the compiler's version)."""
    compiler = re.search(r'Compiled by nvcc (\S+) ', text)
    found = re.findall(rf'^\| `([^`]+)` \| (\d+(?: \| [^|]+){{{len(COLUMNS) - 2}}}) \|$', text,
                       re.MULTILINE)
    return ({label: tuple(cells.split(' | ')) for label, cells in found},
            compiler[1] if compiler else '')


def faults(was, now):
    """Yields what makes row `now` worse than row `was`."""
    def bounds(cells, column):
        ends = cells[COLUMNS.index(column) - 1].split('-') if cells else ['0']
        return [int(end or 0) for end in (ends[0], ends[-1])]

    for column, what in (('Stack', 'uses {} bytes of local memory per thread, not {}'),
                         ('Spilled', 'spills {} bytes, not {}')):
        before, after = bounds(was, column)[1], bounds(now, column)[1]
        if after > before:
            yield what.format(after, before)
    if not was:
        return
    if was[0] != now[0]:
        yield f'has {now[0]} instances, not {was[0]}'
    before, after = bounds(was, 'CTAs')[0], bounds(now, 'CTAs')[0]
    if after < before:
        yield (f'uses so many registers or threads that {after or "an unknown number of"} CTAs '
               f'fit on an SM, not {before}')
    for opcode in OPCODES:
        if bounds(was, opcode)[0] and not bounds(now, opcode)[0]:
            yield f'has no {opcode} any more'


def compare(committed, table):
    """Returns (lines about rows that are worse, new or gone; number of other rows that differ)."""
    problems, harmless = [], 0
    for label in sorted({**committed, **table}, key=natural):
        was, now = committed.get(label), table.get(label)
        if was == now:
            continue
        what = list(faults(was, now)) if now else ['is gone']
        if not was:
            what.insert(0, 'is new')
        if not what:
            harmless += 1
            continue
        problems.append(f'{label} {", ".join(what)}')
        if was:
            problems.append(f'  was {line(was).strip()}')
        if now:
            problems.append(f'  is  {line(now).strip()}')
    return problems, harmless


def fetch_tools():
    """Returns the folder of cuobjdump and nvdisasm, or '' if it could not be fetched."""
    return subprocess.run([ROOT / 'scripts/fetch-cuda-tools'], check=False, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


def read_library(library, tools):
    """Returns what cuobjdump prints about it, for `parse`."""
    environment = dict(os.environ, PATH=f'{tools}:{os.environ["PATH"]}')  # it starts nvdisasm
    return [subprocess.run(['cuobjdump', '-arch', ARCHITECTURE, option, library], check=True,
                           env=environment, text=True, stdout=subprocess.PIPE).stdout
            for option in ('--dump-resource-usage', '-elf', '-sass')]


def demangler(names):
    shown = subprocess.run(['c++filt'], input='\n'.join(names), check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return dict(zip(names, shown)).get


def check(table, compiler, library):
    """Prints how the table differs from the committed one; returns an exit code."""
    committed, pinned = read_page(TABLE.read_text(encoding='utf-8'))
    if compiler != pinned:
        print(f'kernel resources: not compared. {TABLE.relative_to(ROOT)} is for nvcc {pinned}; '
              f'{library} was compiled by {compiler}')
        return 0
    problems, harmless = compare(committed, table)
    for problem in problems:
        print(problem)
    print(f'kernel resources: {len(table)} rows, {sum(p[0] != " " for p in problems)} worse, new '
          f'or gone, {harmless} with other differences')
    if problems or harmless:
        print(f'`tools/kernel_resources.py {library}` writes the table anew')
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('library', metavar='LIBRARY')
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--tools', metavar='FOLDER',
                        help='has cuobjdump and nvdisasm (default: scripts/fetch-cuda-tools)')
    arguments = parser.parse_args()
    tools = arguments.tools or fetch_tools()
    if not tools:
        print('kernel resources: not compared, because the programs that read machine code are missing')
        return 0 if arguments.check else 1
    try:
        kernels, compilers = parse(*read_library(arguments.library, tools))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f'kernel resources: could not read {arguments.library}: {error}', file=sys.stderr)
        return 1
    if not kernels:
        print(f'kernel resources: {arguments.library} has no machine code for {ARCHITECTURE}')
        return 0 if arguments.check else 1
    table = rows(kernels, demangler(list(kernels)))
    compiler = ', '.join(sorted(compilers))
    if arguments.check:
        return check(table, compiler, arguments.library)
    TABLE.write_text(page(table, compiler), encoding='utf-8')
    print(f'kernel resources: {len(kernels)} kernels in {len(table)} rows of '
          f'{TABLE.relative_to(ROOT)}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
