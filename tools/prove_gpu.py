#!/usr/bin/env python3
"""Proves a build of the CUDA backend on a machine with a GPU, and measures it.

prove_gpu.py list                     the parts, their groups and time limits
prove_gpu.py files                    what a build folder must contain, as targets for ninja
prove_gpu.py pack BUILD FILE.tar.xz   packs these files, stripped, with the libraries that a bare
                                      Ubuntu 24.04 lacks, for a machine without a compiler
prove_gpu.py run BUILD OUT [PART...]  runs parts or groups (default: all) of BUILD, a build folder
                                      or an unpacked archive. Writes what they print to the folder
                                      OUT. Exits with 1 if a part fails

`run` needs Python, the driver and CUDA's libraries, and for some parts compute-sanitizer. It begins
no part after --minutes, and gives the last ones less time, so that calls have a bound.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CUDA = '/usr/local/cuda'

TOKAMAK = 'tokamak'
LIBRARY = 'libtokamak_cuda.so'
CONFORMANCE = 'src/ops/cuda/tokamak_cuda_conformance'
KERNELS = 'src/ops/cuda/tokamak_cuda_kernels_test'
BACKEND = 'src/ops/cuda/cuda_backend_test'
STRANGER = 'src/ops/cuda/libtokamak_cuda_stranger.so'  # read by BACKEND
BENCH = 'src/ops/cuda/cuda_kernels_bench'
OPS = 'src/ops/ops_test'
MODELS = 'src/models/models_test'
RUNNER = 'src/runner/runner_test'
STEADY = 'src/runner/runner_steady_test'
INVARIANCE = 'tests/invariance/invariance'
FILES = (TOKAMAK, LIBRARY, CONFORMANCE, KERNELS, BACKEND, STRANGER, BENCH, OPS, MODELS, RUNNER,
         STEADY, INVARIANCE)

# Libraries that are not packed: glibc and GCC's, which every Ubuntu has, and CUDA's.
SYSTEM = re.compile(r'(ld-linux.*|'
                    r'lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cuda|cudart|cublas(Lt)?))\.so')

# Kernels in which racecheck reports hazards that are none, and why.
KNOWN_RACES = {
    'WideAttentionKernel': 'reads of is_last behind a barrier that racecheck does not count '
                           '(bench/results/2026-11-25-h100-inner-types.md)',
    **dict.fromkeys(
        ('Fp8MmaAttentionKernel', 'Fp8WideAttentionKernel', 'Fp8LatentAttentionKernel',
         'Fp8WideLatentAttentionKernel', 'AmpereMmaAttentionKernel'),
        'stages that warps fill and hand over by mbarriers, which racecheck does not count '
        '(bench/results/2026-11-27-h200-fp8-cache-speculation.md); TSan finds none in the emulator'),
    'AmpereLatentAttentionKernel': 'the same, filled by cp.async '
                                   '(bench/results/2026-11-27-h200-heads-sinks-decompressed.md)',
}

NO_GPU = ('no CUDA backend here', 'no GPU:', '[  PASSED  ] 0 tests')
# A report of racecheck begins with such a line and ends before an empty one.
RACE = re.compile(r'^========= +(?:Error|Warning): .*(?:hazard detected|Race reported).*\n'
                  r'(?:=========[ \t]+\S.*\n)*', re.MULTILINE)
RACES = re.compile(r'RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)')
ERRORS = re.compile(r'ERROR SUMMARY: (\d+) errors?')


def no_gpu(output):
    """Says what is wrong with a test's output; "" if nothing is."""
    return next((f'skipped: {words}' for words in NO_GPU if words in output), '')


def no_errors(output):
    found = ERRORS.findall(output)
    if not found:
        return 'compute-sanitizer did not end'
    return no_gpu(output) or ('' if set(found) == {'0'} else f'{" + ".join(found)} errors')


def no_races(output):
    """Takes reports that are known to be wrong for none."""
    found = RACES.findall(output)
    if not found:
        return 'racecheck did not end'
    count = sum(int(errors) + int(warnings) for errors, warnings in found)
    known, unknown = 0, set()
    for report in RACE.findall(output):
        kernels = set(re.findall(r'\w+Kernel\b', report))
        if kernels and kernels <= KNOWN_RACES.keys():
            known += 1
        else:
            unknown |= kernels or {'a kernel without a name'}
    if unknown:
        return 'hazards in ' + ', '.join(sorted(unknown))
    return no_gpu(output) or ('' if known == count else f'{count} hazards, {known} of them known')


@dataclasses.dataclass
class Part:
    name: str
    group: str
    seconds: int    # its time limit
    commands: list  # each a list of words; the first is a file of the build folder
    check: object = no_gpu
    tool: tuple = ()      # words before each command
    alone: bool = False   # nothing else may run: it is timed
    to_json: bool = False  # what it prints to stdout is added to bench.jsonl


def parts(requests=600, kernels='new'):
    """All parts, in the order in which they are begun."""
    cases = ':'.join(f'*{case}*/cuda*' for case in (
        'ActivationOps.', 'NormOps.', 'MoeOps.', 'GroupedOps.', 'MlaOps.Cut',
        'ElementwiseOps.Softcap', 'ElementwiseOps.Convert', 'AttentionOps.EditedScores',
        'AttentionOps.CapsAndSinks', 'AttentionOps.Alibi', 'AttentionOps.NonCausal'))
    cases += '-*cuda_plain'  # the same kernels
    memcheck = ('compute-sanitizer', '--tool', 'memcheck', '--report-api-errors', 'no')
    racecheck = ('compute-sanitizer', '--tool', 'racecheck', '--print-limit', '10000')
    products = '--gtest_filter=*LinearOps.Inner*/cuda:*LinearOps.LinearOfMany*/cuda'

    def correct(name, seconds, *command):
        return Part(name, 'correct', seconds, [command])

    def invariance(name, which, count):
        return Part(name, 'invariance', 240, [(INVARIANCE, '--device', 'cuda', '--kernels', which,
                                               '--types', 'BF16', '--requests', str(count))])

    def sanitize(name, tool, check, *command):
        return Part(name, 'sanitizers', 200, [command], check, tool)

    result = [
        correct('conformance', 60, CONFORMANCE),
        correct('kernels', 120, KERNELS),
        correct('ops', 240, OPS, '--gtest_filter=*/cuda*'),
        correct('models', 150, MODELS, '--gtest_filter=*Cuda*'),
        correct('runner', 150, RUNNER, '--gtest_filter=*uda*'),
        correct('steady', 100, STEADY, '--gtest_filter=*uda*'),
        # A kernel that never ends would hold up the other parts.
        correct('backend', 150, BACKEND, '--gtest_filter=-*NeverEnds*'),
        invariance('invariance', kernels, requests),
        invariance('invariance-plain', 'plain', max(1, requests // 3)),
        sanitize('memcheck-kernels', memcheck, no_errors, KERNELS),
        sanitize('memcheck-ops', memcheck, no_errors, OPS, f'--gtest_filter={cases}'),
        sanitize('memcheck-products', memcheck, no_errors, OPS, products),
        sanitize('racecheck-kernels', racecheck, no_races, KERNELS),
        sanitize('racecheck-ops', racecheck, no_races, OPS,
                 # Leaves these out: no thread of theirs reads what another one writes.
                 f'--gtest_filter={cases}:*Elementwise*'),
    ]
    for model in ('llama3.1-8b', 'qwen3-14b', 'qwen3-0.6b'):
        engine = (f'dummy:{ROOT}/bench/configs/{model}.json', '--device', 'cuda', '--kernels',
                  kernels, '--max-context', '4096', '--max-batch-tokens', '8192')
        throughput = (TOKAMAK, 'bench', 'throughput', *engine, '--max-seqs', '256')
        latency = (TOKAMAK, 'bench', 'latency', *engine)
        result.append(Part(f'bench-{model}', 'speed', 150, [
            (*throughput, '--json'),  # offline256
            (*throughput, '--requests', '32', '--input', '2048', '--output', '1', '--json'),
            (*latency, '--max-seqs', '64', '--batch', '1,16,64', '--prompt-tokens', '128',
             '--output-tokens', '100', '--json')], alone=True, to_json=True))
        result.append(Part(f'profile-{model}', 'profile', 120, [
            (*throughput, '--profile'),
            (*latency, '--max-seqs', '256', '--batch', '1,16,131', '--prompt-tokens', '800',
             '--output-tokens', '20', '--cuda-graphs', 'off', '--profile')], alone=True))
    result.append(Part('bench-kernels', 'micro', 300, [(BENCH,)], alone=True))
    return result


def choose(names, requests, kernels):
    every = parts(requests, kernels)
    known = {part.name for part in every} | {part.group for part in every}
    for name in names:
        if name not in known:
            raise SystemExit(f'prove_gpu.py: no part or group "{name}"; see prove_gpu.py list')
    return [part for part in every if not names or {part.name, part.group} & set(names)]


class Proof:
    """Runs parts of a build folder until a deadline."""

    def __init__(self, build, out, deadline):
        self.build = build
        self.out = out
        self.deadline = deadline
        libraries = [str(build / 'lib'), f'{CUDA}/lib64', os.environ.get('LD_LIBRARY_PATH', '')]
        self.environment = dict(os.environ, TOKAMAK_CUDA_LIBRARY=str(build / LIBRARY),
                                LD_LIBRARY_PATH=':'.join(filter(None, libraries)),
                                PATH=f'{os.environ.get("PATH", "")}:{CUDA}/bin')

    def execute(self, command, stdout, stderr, seconds):
        """Returns the exit code; None if the time did not suffice."""
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                   cwd=ROOT, env=self.environment, start_new_session=True)
        try:
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None

    def run(self, part):
        """Returns the part's name, what is wrong, and how many seconds it took."""
        begin = time.monotonic()
        problem = self.problem_of(part, min(self.deadline, begin + part.seconds))
        seconds = time.monotonic() - begin
        print(f'{part.name}: {problem or "passed"} ({seconds:.0f} s)', flush=True)
        return part.name, problem, seconds

    def problem_of(self, part, end):
        if end - time.monotonic() < 1:
            return 'not begun: no time left'
        if part.tool and shutil.which(part.tool[0], path=self.environment['PATH']) is None:
            return f'no {part.tool[0]} here'
        log = self.out / f'{part.name}.txt'
        with open(log, 'wb') as text, open(self.out / 'bench.jsonl', 'ab') as results:
            for words in part.commands:
                command = [*part.tool, str(self.build / words[0]), *words[1:]]
                code = self.execute(command, results if part.to_json else text,
                                    text if part.to_json else subprocess.STDOUT,
                                    max(0, end - time.monotonic()))
                if code != 0:
                    if part.to_json:
                        results.write(b'\n')  # ends a line that was cut off
                    return 'out of time' if code is None else f'exit code {code}'
        return part.check(log.read_text(errors='replace'))

    def run_all(self, chosen, jobs):
        """First those that may run side by side, then the timed ones."""
        together = [part for part in chosen if not part.alone]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(self.run, together))
        return results + [self.run(part) for part in chosen if part.alone]


def figures(out):
    """The results of benches, a line each."""
    lines = []
    for text in (out / 'bench.jsonl').read_text().splitlines():
        try:
            run = json.loads(text)
        except ValueError:
            continue  # cut off with its part
        lines.append(f'{run["model"]:<14}{run["requests"]:>5} requests, {run["batch"]:>3} at a '
                     f'time: {run["output_tok_s"]:>8.0f} output tok/s, {run["prompt_tok_s"]:>8.0f} '
                     f'prompt tok/s, first token {run["ttft_ms"]["p50"]:>7.2f} ms, then '
                     f'{run["tpot_ms"]["p50"]:>6.3f} ms each')
    return lines


def output_of(*command, env=None):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout + done.stderr).strip()


def link_sources(build):
    """Tests read goldens where their sources were compiled. If that is nowhere here, links it to
    this tree. Returns the link, or None."""
    cache = (build / 'CMakeCache.txt').read_text()
    match = re.search(r'^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$', cache, re.MULTILINE)
    if match is None or os.path.lexists(match[1]):
        return None
    link = pathlib.Path(match[1])
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(ROOT)
    return link


def run(args):
    build, out = args.build.resolve(), args.out.resolve()
    chosen = choose(args.parts, args.requests, args.kernels)
    needed = {command[0] for part in chosen for command in part.commands}
    needed |= {TOKAMAK, LIBRARY, 'CMakeCache.txt'}
    missing = sorted(name for name in needed if not (build / name).exists())
    if missing:
        raise SystemExit(f'prove_gpu.py: {build} lacks {", ".join(missing)}')
    out.mkdir(parents=True, exist_ok=True)
    (out / 'bench.jsonl').unlink(missing_ok=True)
    proof = Proof(build, out, time.monotonic() + 60 * args.minutes)
    link = link_sources(build)
    try:
        results = proof.run_all(chosen, args.jobs)
    finally:
        if link is not None:
            link.unlink()
    gpu = output_of('nvidia-smi', '--query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem',
                    '--format=csv,noheader')
    version = output_of(str(build / TOKAMAK), '--version', env=proof.environment)
    table = [gpu, version, *(f'{name:<22}{problem or "passed":<40}{seconds:>6.0f} s'
                    for name, problem, seconds in results)]
    if (out / 'bench.jsonl').exists():
        table += figures(out)
    (out / 'summary.txt').write_text('\n'.join(table) + '\n')
    print('\n' + '\n'.join(table))
    return 1 if any(problem for _, problem, _ in results) else 0


def libraries_of(program):
    """The shared libraries that a bare Ubuntu lacks: name and path."""
    found = re.findall(r'^\s*(\S+) => (/\S+)', output_of('ldd', str(program)), re.MULTILINE)
    return {name: path for name, path in found if not SYSTEM.match(name)}


def pack(args):
    missing = [name for name in FILES if not (args.build / name).exists()]
    if missing:
        raise SystemExit('prove_gpu.py: build these first: '
                         f'ninja -C {args.build} {" ".join(missing)}')
    libraries = {}
    with tempfile.TemporaryDirectory() as folder, tarfile.open(args.archive, 'w:xz') as archive:
        archive.add(args.build / 'CMakeCache.txt', 'CMakeCache.txt')
        for name in FILES:
            stripped = pathlib.Path(folder) / pathlib.Path(name).name
            subprocess.run(['strip', '-o', stripped, args.build / name], check=True)
            archive.add(stripped, name)
            libraries |= libraries_of(args.build / name)
        for name, path in sorted(libraries.items()):
            archive.add(os.path.realpath(path), f'lib/{name}')
    print(f'{args.archive}: {args.archive.stat().st_size / 1e6:.1f} MB, with '
          f'{", ".join(sorted(libraries)) or "no libraries"}')
    return 0


def show(_):
    print(f'{"Part":<22}{"Group":<12}{"Limit, s":>8}  Runs')
    for part in parts():
        runs = ', '.join(dict.fromkeys(command[0] for command in part.commands))
        print(f'{part.name:<22}{part.group:<12}{part.seconds:>8}  {" ".join(part.tool[:3])} {runs}')
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)

    def add(name, function, *folders):
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        for folder in folders:
            command.add_argument(folder, type=pathlib.Path)
        return command

    add('list', show)
    add('files', lambda _: print(' '.join(FILES)) or 0)
    add('pack', pack, 'build', 'archive')
    command = add('run', run, 'build', 'out')
    command.add_argument('parts', nargs='*')
    command.add_argument('--minutes', type=float, default=8)
    command.add_argument('--jobs', type=int, default=4, help='parts at a time that are not timed')
    command.add_argument('--requests', type=int, default=600,
                         help='of `invariance`; a third as many with plain kernels')
    command.add_argument('--kernels', default='new', help='of `invariance` and of what is timed')
    args = parser.parse_args()
    return args.function(args)


if __name__ == '__main__':
    sys.exit(main())
