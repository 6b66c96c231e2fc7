"""AddRmsNorm (ops/ops.h) for rows of up to BLOCK columns, in Triton's language: one program per row.

    residual += x (with ADD); out = residual / sqrt(mean(residual²) + eps) · weight

A program has BLOCK columns, a power of two, and does nothing in those beyond the row's end. It runs
on BLOCK / 4 threads. A row's result depends on that row alone, and has the bits of our own kernel
(ops/cuda/elementwise.cu): the same sums in the same order, whatever the block. compile.py compiles
this for GPUs; docs/triton.md follows it from here to machine code.

Bound: memory. Each input is read once and each output written once, four columns at a time.
"""
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def add_rms_norm(x, residual, weight, out,  # [rows, cols], f32 or bf16; residual and weight f32
                 x_stride, residual_stride, out_stride,  # from row to row, in elements
                 cols, eps,
                 ADD: tl.constexpr,  # else x is normalized, and residual is not used
                 DEPENDENT: tl.constexpr,  # may begin before the kernel ahead has ended (Hopper)
                 BLOCK: tl.constexpr):
    if DEPENDENT:
        gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < cols
    # No kernel writes weights during a step, so they are read before the kernel ahead has ended.
    scale = tl.load(weight + column, mask=inside, other=0.0)
    if DEPENDENT:
        gdc_wait()
    values = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        sums = residual + row * residual_stride + column
        values += tl.load(sums, mask=inside, other=0.0)
        tl.store(sums, values, mask=inside)

    # Each thread adds the squares of its four columns in ascending order. tl.sum then adds threads
    # in the order of BlockSum (ops/cuda/device.cuh).
    even, odd = tl.split(tl.reshape(values, [BLOCK // 4, 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    squares = tl.fma(second, second, first * first)
    squares = tl.fma(fourth, fourth, tl.fma(third, third, squares))
    mean = tl.div_rn(tl.sum(squares, axis=0), cols.to(tl.float32))
    normalized = values * tl.div_rn(1.0, tl.sqrt_rn(mean + eps)) * scale
    tl.store(out + row * out_stride + column, normalized.to(out.dtype.element_ty), mask=inside)
