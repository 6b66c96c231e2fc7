#!/usr/bin/env python3
"""Compiles add_rms_norm.py for GPUs, without one, by Triton 3.9.

compile.py OUTPUT.cc ARCHITECTURE...           writes the table of kernels that loader.h declares,
                                               with their machine code; architectures as nvcc names
                                               them, e.g. sm_90a
compile.py --stages FOLDER ARCHITECTURE BLOCK  writes what the compiler makes of one kernel: add in
                                               bf16, with rows of up to BLOCK columns

Uses Triton's own ptxas, or the one that TRITON_PTXAS_BLACKWELL_PATH (for sm_90a and newer) or
TRITON_PTXAS_PATH names.
"""
import itertools
import os
import pathlib
import re
import sys
import tempfile

os.environ['TRITON_DISABLE_LINE_INFO'] = '1'  # no paths of this machine in the machine code

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from add_rms_norm import add_rms_norm

BLOCKS = (512, 1024, 2048, 4096)  # columns
COLUMNS_OF_A_THREAD = 4
BYTES = {'bf16': 2, 'fp32': 4}

# What the machine code takes, in loader.cc too: four pointers, three strides, cols, eps, and two
# pointers to scratch memory, which no kernel here needs.
PARAMETERS = ['u64'] * 7 + ['u32', 'f32'] + ['u64'] * 2

HEAD = """\
// Written by compile.py: machine code that Triton compiled from add_rms_norm.py.
#include "ops/cuda/triton/loader.h"

namespace tokamak::cuda {
namespace {

"""
TAIL = """\
};

}  // namespace

std::span<const TritonKernel> TritonKernels() { return kKernels; }

}  // namespace tokamak::cuda
"""


def capability(architecture):
    """Returns 90 for "sm_90a"."""
    found = re.fullmatch(r'sm_(\d+)[af]?', architecture)
    if not found:
        raise SystemExit(f'compile.py: "{architecture}" is no architecture; give sm_90a or the like')
    return int(found[1])


def compile_kernel(target, x, out, adds, block):
    """Returns Triton's compiled kernel; x and out are types."""
    types = {'x': f'*{x}', 'residual': '*fp32', 'weight': '*fp32', 'out': f'*{out}',
             'x_stride': 'i64', 'residual_stride': 'i64', 'out_stride': 'i64', 'cols': 'i32',
             'eps': 'fp32', 'ADD': 'constexpr', 'DEPENDENT': 'constexpr', 'BLOCK': 'constexpr'}
    constants = {'ADD': adds, 'DEPENDENT': target >= 90, 'BLOCK': block}
    # A row is read four columns at a time: pointers are multiples of as many bytes, strides and
    # cols of four. A larger promise for x alone would give its threads eight columns, and each
    # store of the residual a detour through shared memory.
    multiples = [4 * BYTES[x], 16, 16, 4 * BYTES[out], 4, 4, 4, 4]
    hints = {(i,): [['tt.divisibility', multiple]] for i, multiple in enumerate(multiples)}
    kernel = triton.compile(
        ASTSource(fn=add_rms_norm, signature=types, constexprs=constants, attrs=hints),
        target=GPUTarget('cuda', target, 32),
        # Nothing is fused that the source does not fuse.
        options={'num_warps': block // COLUMNS_OF_A_THREAD // 32, 'enable_fp_fusion': False})
    check(kernel, block)
    return kernel


def check(kernel, block):
    """Other versions of Triton may call kernels in another way than loader.cc does."""
    ptx = kernel.asm['ptx']
    head = re.search(r'\.entry add_rms_norm\((.*?)\)\s*\.reqntid (\d+)', ptx, re.DOTALL)
    parameters = re.findall(r'\.param \.(\w+)', head[1]) if head else None
    threads = int(head[2]) if head else 0
    scratch = kernel.metadata.global_scratch_size + kernel.metadata.profile_scratch_size
    if (parameters, threads, scratch) != (PARAMETERS, block // COLUMNS_OF_A_THREAD, 0):
        raise SystemExit(f'compile.py: Triton {triton.__version__} made a kernel with parameters '
                         f'{parameters}, {threads} threads and {scratch} bytes of scratch memory, '
                         f'which loader.cc does not expect; use Triton 3.9')


def literal(data):
    return '"' + ''.join(f'\\x{byte:02x}' for byte in data) + '"'


def boolean(value):
    return 'true' if value else 'false'


def write_table(output, architectures):
    code, rows = [], []
    for target in sorted({capability(architecture) for architecture in architectures}):
        for adds, x, out, block in itertools.product((False, True), BYTES, BYTES, BLOCKS):
            kernel = compile_kernel(target, x, out, adds, block)
            cubin = kernel.asm['cubin']
            code.append(f'alignas(16) constexpr char kCode{len(rows)}[] = {literal(cubin)};\n')
            rows.append(f'    {{.name = "add_rms_norm", .capability = {target}, .cols = {block}, '
                        f'.x_bf16 = {boolean(x == "bf16")}, .out_bf16 = {boolean(out == "bf16")}, '
                        f'.adds = {boolean(adds)}, .threads = {block // COLUMNS_OF_A_THREAD}, '
                        f'.shared_bytes = {kernel.metadata.shared}, '
                        f'.code = {{kCode{len(rows)}, {len(cubin)}}}}},\n')
    pathlib.Path(output).write_text(
        HEAD + ''.join(code) + '\nconstexpr TritonKernel kKernels[] = {\n' + ''.join(rows) + TAIL)


def write_stages(folder, architecture, block):
    kernel = compile_kernel(capability(architecture), 'bf16', 'bf16', True, int(block))
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for stage in ('ttir', 'ttgir', 'llir', 'ptx'):
        (folder / f'add_rms_norm.{stage}').write_text(kernel.asm[stage])
    (folder / 'add_rms_norm.cubin').write_bytes(kernel.asm['cubin'])


def main():
    words = sys.argv[1:]
    with tempfile.TemporaryDirectory() as cache:  # nothing of an earlier run
        triton.knobs.cache.dir = cache
        if len(words) == 4 and words[0] == '--stages':
            write_stages(*words[1:])
        elif len(words) >= 2 and words[0] != '--stages':
            write_table(words[0], words[1:])
        else:
            raise SystemExit(__doc__)


if __name__ == '__main__':
    main()
