#!/usr/bin/env python3
"""Checks that kernels use only C++ syntax, so that other compilers accept them too.

Launches, shared memory, PTX and the compiler's macros may appear only in the header made for each;
elsewhere in src/ops/cuda they are violations. A tensor map that TMA cannot find is one too. Prints
"file:line: rule" for each violation and exits with 1 if there is any.
"""
import pathlib
import re
import sys

FOLDER = 'src/ops/cuda'
# Each rule: a pattern, the headers that may contain it, and what to use instead.
RULES = [
    (re.compile('<<<'), [], 'launch with LaunchKernel (ops/cuda/launch.h)'),
    (re.compile(r'\b__shared__\b'), ['launch.h'],
     'use SHARED or DYNAMIC_SHARED (ops/cuda/launch.h)'),
    (re.compile(r'\b(asm|__asm__)\b'), ['ptx.h'], 'PTX belongs in ops/cuda/ptx.h'),
    (re.compile(r'\b__(CUDACC|CUDA_ARCH|NVCC)\w*'), ['launch.h', 'ptx.h'],
     'what depends on the compiler belongs in ops/cuda/launch.h or ops/cuda/ptx.h'),
    (re.compile(r'(?<!__grid_constant__ )\bCUtensorMap \w+(?=[,)])'), [],
     'TMA finds a tensor map only in a parameter "const __grid_constant__ CUtensorMap map"'),
]
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def check_file(folder, path):
    """Yields (line number, message)."""
    code = NO_CODE.sub(lambda m: re.sub(r'[^\n]', ' ', m.group()),
                       path.read_text(encoding='utf-8'))
    for number, line in enumerate(code.splitlines(), 1):
        for pattern, homes, advice in RULES:
            found = pattern.search(line)
            if found and path.relative_to(folder).as_posix() not in homes:
                yield number, f'"{found.group()}": {advice}'


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.').resolve()
    folder = root / FOLDER
    files = [p for p in sorted(folder.rglob('*')) if p.suffix in ('.h', '.cc', '.cu', '.cuh')]
    errors = 0
    for path in files:
        for number, message in check_file(folder, path):
            print(f'{path.relative_to(root)}:{number}: {message}')
            errors += 1
    print(f'kernels: {len(files)} files, {errors} violations')
    return 1 if errors else 0


if __name__ == '__main__':
    sys.exit(main())
