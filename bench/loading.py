#!/usr/bin/env python3
"""Compares the speed of loading weights from the disk with the speed of the disk.

  bench/loading.py MODEL [--runs 5] [-- --device cpu ...]

MODEL is a GGUF file or a Hugging Face directory of a few GB; for smaller ones, reading is not what
takes the time. Before each load its files are dropped from the system's cache. dd reads the disk,
past the cache and through it; loads are compared with the faster of the two. All take turns. Prints
medians, and the least and the greatest. Arguments after -- go to `tokamak bench latency`, which
reports its loading time.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
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


def load(model, options):
    run = subprocess.run([BINARY, 'bench', 'latency', str(model), '--json', '--batch', '1', '--prompt-tokens', '4',
                          '--output-tokens', '1', '--max-context', '64', *options],
                         stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout.splitlines()[0])['load_s']


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('model', type=pathlib.Path)
    parser.add_argument('--runs', type=int, default=5)
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

    ways = {'disk, past the cache': lambda: read(files, ['iflag=direct']),
            'disk, through the cache': lambda: read(files, []),
            'load from the disk': cold,
            'load from the cache': lambda: load(args.model, options)}
    rates = {name: [] for name in ways}
    for _ in range(args.runs):
        for name, way in ways.items():
            rates[name].append(gigabytes / way())
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        print(f'{name:24} {medians[name]:6.2f} GB/s  ({min(values):.2f} to {max(values):.2f})')
    disk = max(medians['disk, past the cache'], medians['disk, through the cache'])
    print(f'{gigabytes:.2f} GB; from the disk {medians["load from the disk"] / disk:.0%} of its speed')


if __name__ == '__main__':
    main()
