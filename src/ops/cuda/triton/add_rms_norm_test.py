"""Tests add_rms_norm.py in Triton's interpreter, which needs no GPU, against the formula in double.
Run with the Python of scripts/fetch-triton."""
import itertools
import os
import unittest

os.environ['TRITON_INTERPRET'] = '1'

import numpy as np

from add_rms_norm import add_rms_norm

EPS = 1e-5
GAP = 4  # columns that belong to no row, between two rows


class Memory:
    """A numpy array with the parts of torch.Tensor that the interpreter uses. bf16 is uint16."""

    def __init__(self, array):
        self.array = array
        self.dtype = {np.dtype(np.float32): 'fp32', np.dtype(np.uint16): 'bf16'}[array.dtype]

    def data_ptr(self):
        return self.array.ctypes.data

    def untyped_storage(self):
        return self

    def cpu(self):
        return self

    def new_empty(self, *_, **__):
        return Memory(self.array)

    def set_(self, *_):
        pass

    def copy_(self, _):
        pass

    def storage_offset(self):
        return 0

    def size(self):
        return self.array.shape

    def stride(self):
        return ()


def to_bf16(values):
    """Rounds to nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def to_float(values):
    if values.dtype == np.float32:
        return values
    return (values.astype(np.uint32) << 16).view(np.float32)


class AddRmsNorm(unittest.TestCase):
    def run_case(self, rows, cols, block, adds, x_bf16, out_bf16):
        random = np.random.default_rng(rows + 10 * cols + block)
        shape = (rows, cols + GAP)
        x = random.standard_normal(shape).astype(np.float32)
        if x_bf16:
            x = to_bf16(x)
        residual = (30 * random.standard_normal(shape)).astype(np.float32)
        weight = random.standard_normal(cols).astype(np.float32)
        out = np.full(shape, np.nan, np.float32)
        if out_bf16:
            out = to_bf16(out)
        before, untouched = residual.copy(), out.copy()
        stride = shape[1]
        add_rms_norm[(rows,)](Memory(x), Memory(residual), Memory(weight), Memory(out), stride,
                              stride, stride, cols, EPS, ADD=adds, DEPENDENT=False, BLOCK=block)

        values = to_float(x)
        if adds:
            values = before + values  # f32, and to the bit what the residual becomes
            np.testing.assert_array_equal(residual[:, :cols], values[:, :cols])
        else:
            np.testing.assert_array_equal(residual, before)
        np.testing.assert_array_equal(residual[:, cols:], before[:, cols:])
        np.testing.assert_array_equal(out[:, cols:], untouched[:, cols:])
        exact = values[:, :cols].astype(np.float64)
        exact *= weight / np.sqrt(np.mean(exact ** 2, axis=1, keepdims=True) + EPS)
        # Units in the last place: of the roundings after the sum, and of the sum itself.
        allowed = (4 + 2 + np.sqrt(cols) / 2) * 2.0 ** -24
        if out_bf16:
            allowed += 2.0 ** -7  # the interpreter truncates; machine code rounds
        error = np.abs(to_float(out)[:, :cols] - exact) - allowed * np.abs(exact)
        self.assertLessEqual(error.max(), 1e-38)

    def test_matches_the_formula(self):
        sizes = ((1, 4, 512), (3, 512, 512), (3, 576, 1024), (2, 2880, 4096), (1, 4096, 4096))
        for (rows, cols, block), adds, x_bf16, out_bf16 in itertools.product(
                sizes, (False, True), (False, True), (False, True)):
            with self.subTest(rows=rows, cols=cols, adds=adds, x_bf16=x_bf16, out_bf16=out_bf16):
                self.run_case(rows, cols, block, adds, x_bf16, out_bf16)


if __name__ == '__main__':
    unittest.main()
