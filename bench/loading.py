#!/usr/bin/env python3
"""Compares the speed of loading weights with the speed of the disk and of copying the files.

  bench/loading.py MODEL [--runs 5] [--llama-bench PATH] [-- --device cpu ...]

MODEL is a GGUF file or a Hugging Face directory of a few GB; for smaller ones, reading is not what
takes the time. Everything is done from the disk, for which the files are dropped from the system's
cache, and from the cache. dd reads the disk, past the cache and through it. A copy reads the files
into fresh huge pages, with a thread per core; loading cannot be faster, because weights need that
memory too. All take turns. Prints medians, and the least and the greatest. Arguments after -- go to
`tokamak bench latency`, which reports its loading time.
"""

import argparse
import concurrent.futures
import json
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORES = len(os.sched_getaffinity(0))
BINARY = os.environ.get('TOKAMAK_BINARY', str(ROOT / 'build' / 'tokamak'))


def files_of(model):
    if model.is_dir():
        return sorted(model.glob('*.safetensors'))
    return sorted(model.parent.glob(model.name.replace('-00001-of-', '-*-of-')))


def forget(files):
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)  # unwritten data would stay in the cache
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read(files, flags):
    forget(files)
    start = time.perf_counter()
    for file in files:
        subprocess.run(['dd', f'if={file}', 'of=/dev/null', 'bs=8M', 'status=none', *flags], check=True)
    return time.perf_counter() - start


def copy(files):
    """Returns the seconds to read `files` into new anonymous memory of huge pages."""
    piece = 4 << 20
    sizes = [file.stat().st_size for file in files]
    starts = [sum(-(-size // piece) * piece for size in sizes[:i]) for i in range(len(files) + 1)]
    sizes = dict(zip(files, sizes))
    start = time.perf_counter()
    with mmap.mmap(-1, max(1, starts[-1] + mmap.PAGESIZE), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory, \
            memoryview(memory) as view, concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        memory.madvise(mmap.MADV_HUGEPAGE)
        descriptors = {file: os.open(file, os.O_RDONLY) for file in files}

        def read_piece(part):
            file, to, offset = part
            end = min(offset + piece, sizes[file])
            while offset < end:
                with view[to:to + end - offset] as target:
                    got = os.preadv(descriptors[file], [target], offset)
                if got == 0:
                    raise EOFError(f'{file} became shorter')
                to, offset = to + got, offset + got

        parts = [(file, at + offset, offset) for file, at in zip(files, starts)
                 for offset in range(0, sizes[file], piece)]
        list(pool.map(read_piece, parts))
        took = time.perf_counter() - start
        for descriptor in descriptors.values():
            os.close(descriptor)
    return took


def load(model, options):
    run = subprocess.run([BINARY, 'bench', 'latency', str(model), '--json', '--batch', '1', '--prompt-tokens', '4',
                          '--output-tokens', '1', '--max-context', '64', *options],
                         stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout.splitlines()[0])['load_s']


def first_token(command):
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def compare_first_token(args, files, options):
    """Prints medians of seconds, by program."""
    programs = {'tokamak': [BINARY, 'run', str(args.model), '--token-ids', '1,2,3,4', '--max-tokens', '1',
                            '--ignore-eos', '--temperature', '0', *options]}
    for repack in (1, 0):
        programs[f'llama.cpp, repack {repack}'] = [args.llama_bench, '-m', str(args.model), '-p', '4', '-n', '0',
                                                   '-r', '1', '--no-warmup', '--repack', str(repack)]
    seconds = {name: ([], []) for name in programs}
    for _ in range(args.runs):
        for name, command in programs.items():
            forget(files)
            for values in seconds[name]:  # from the disk, then from the cache
                values.append(first_token(command))
    for name, (disk, cache) in seconds.items():
        print(f'{name:24} first token after {statistics.median(disk):.2f} s from the disk, '
              f'{statistics.median(cache):.2f} s from the cache')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('model', type=pathlib.Path)
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--llama-bench', help='llama.cpp\'s program')
    own = sys.argv[1:]
    at = own.index('--') if '--' in own else len(own)
    args, options = parser.parse_args(own[:at]), own[at + 1:]
    files = files_of(args.model)
    gigabytes = sum(file.stat().st_size for file in files) / 1e9
    if not files:
        sys.exit(f'{args.model}: no weights')

    def cold():
        forget(files)
        return load(args.model, options)

    def cold_copy():
        forget(files)
        return copy(files)

    ways = {'disk, past the cache': lambda: read(files, ['iflag=direct']),
            'disk, through the cache': lambda: read(files, []),
            'copy from the disk': cold_copy,
            'load from the disk': cold,
            'copy from the cache': lambda: copy(files),
            'load from the cache': lambda: load(args.model, options)}
    rates = {name: [] for name in ways}
    for _ in range(args.runs):
        for name, way in ways.items():
            rates[name].append(gigabytes / way())
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        print(f'{name:24} {medians[name]:6.2f} GB/s  ({min(values):.2f} to {max(values):.2f})')
    disk = max(medians['disk, past the cache'], medians['disk, through the cache'])
    print(f'{gigabytes:.2f} GB; from the disk {medians["load from the disk"] / disk:.0%} of its speed and '
          f'{medians["load from the disk"] / medians["copy from the disk"]:.0%} of a copy\'s; '
          f'from the cache {medians["load from the cache"] / medians["copy from the cache"]:.0%} of a copy\'s')
    if args.llama_bench:
        compare_first_token(args, files, options)


if __name__ == '__main__':
    main()
