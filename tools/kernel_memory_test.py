"""Tests of kernel_memory.py on lines as the program prints them. Run: python3 -m unittest discover
tools -p '*_test.py'"""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import kernel_memory

NAMES = {16: 'CopyKernel', 32: 'TileKernel'}


def run(kernel, loads=(0, 0), stores=(0, 0), shared=(0, 0), moved=64, least=64):
    zero = [0, 0, 0]
    costs = [[1, *loads], [1, *stores], [1, *shared], zero, zero]
    return {'kernel': kernel, 'costs': costs, 'bytes': moved, 'least': {NAMES[kernel]: least},
            'places': []}


class Table(unittest.TestCase):
    def setUp(self):
        self.table = kernel_memory.rows(
            [run(16, loads=(4, 4), stores=(8, 2), moved=96),
             run(32, loads=(8, 8), shared=(3, 2)),
             run(32, loads=(10, 8))], NAMES.get)

    def test_a_row_has_the_best_and_the_worst_of_a_kernels_runs(self):
        self.assertEqual(self.table, {
            'CopyKernel': ('1', '1.00', '4.00', '-', '-', '1.50'),
            'TileKernel': ('2', '1.00-1.25', '-', '-', '1.50', '1.00')})

    def test_another_kernel_than_the_one_that_was_to_run_is_an_error(self):
        wrong = run(16)
        wrong['kernel'] = 32
        with self.assertRaisesRegex(ValueError, 'TileKernel ran where CopyKernel was to run'):
            kernel_memory.rows([wrong], NAMES.get)

    def test_a_written_page_is_read_back(self):
        text = kernel_memory.page(self.table, {'CopyKernel': {'Stores': 'two bytes per lane'}})
        self.assertEqual(kernel_memory.read_page(text), self.table)
        self.assertIn('- `CopyKernel`, stores: two bytes per lane\n', text)

    def test_what_is_above_a_limit_needs_a_reason(self):
        reasons = {'CopyKernel': {'Stores': 'x', 'Bytes': 'x', 'Loads': 'x'}, 'Gone': {}}
        self.assertEqual(list(kernel_memory.above_limits(self.table, reasons)), [
            'CopyKernel: Loads is 1.00 and needs no exception any more',
            'TileKernel: Loads is 1.00-1.25, above 1.1, and no exception says why',
            'TileKernel: Shared is 1.50, above 1.1, and no exception says why',
            'Gone: has an exception, but is no kernel that ran'])


class Comparing(unittest.TestCase):
    WAS = {'CopyKernel': ('1', '1.00', '4.00', '-', '-', '1.05')}

    def compare(self, *cells):
        return kernel_memory.compare(self.WAS, {'CopyKernel': cells})

    def test_a_row_that_became_worse_is_a_problem(self):
        self.assertEqual(self.compare('1', '1.00-1.50', '4.00', '-', '2.00', '1.05'), (
            ['CopyKernel: Loads is 1.00-1.50, not 1.00', 'CopyKernel: Shared is 2.00, not -'], 0))

    def test_a_row_that_became_better_or_hardly_differs_is_none(self):
        self.assertEqual(self.compare('1', '1.01', '2.00', '-', '-', '1.05'), ([], 1))

    def test_kernels_come_and_go(self):
        self.assertEqual(kernel_memory.compare(self.WAS, {'TileKernel': self.WAS['CopyKernel']}),
                         (['CopyKernel: is gone', 'TileKernel: is new'], 0))

    def test_each_listed_kernel_must_run(self):
        listed = kernel_memory.listed_kernels('| `CopyKernel` | 1 |\n| `TileKernel<64>` | 1 |\n'
                                              '| `StallKernel` | 1 |\n')
        self.assertEqual(list(kernel_memory.not_run(self.WAS, listed)),
                         ['TileKernel: bench/cuda_memory.cc does not run it'])


if __name__ == '__main__':
    unittest.main()
