"""Tests of the checkers: each rule must be able to fail. Run: python3 -m unittest discover tools -p '*_test.py'"""
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import check_includes
import check_links
import check_sizes


class Includes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ('base/error.h', 'tensor/tensor.h', 'ops/ops.h', 'ops/cpu/gemm.h', 'nn/pass.h',
                     'executor/executor.h', 'executor/local.h', 'runner/runner.h'):
            self.write(f'src/{name}', '')

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def errors(self, name, *includes):
        path = self.write(name, ''.join(f'#include {i}\n' for i in includes))
        return list(check_includes.check_file(self.root, path))

    def test_downward_is_allowed_and_upward_is_not(self):
        self.assertEqual(self.errors('src/nn/a.cc', '"ops/ops.h"', '"base/error.h"'), [])
        self.assertEqual([n for n, _ in self.errors('src/tensor/a.cc', '"base/error.h"',
                                                    '"ops/ops.h"')], [2])

    def test_backends_and_models_do_not_know_each_other(self):
        self.assertEqual(len(self.errors('src/nn/a.cc', '"ops/cpu/gemm.h"')), 1)
        self.assertEqual(len(self.errors('src/ops/cpu/a.cc', '"nn/pass.h"')), 1)
        self.assertEqual(self.errors('src/nn/a_test.cc', '"ops/cpu/gemm.h"'), [])

    def test_the_engine_sees_the_executor_interface_alone(self):
        self.assertEqual(self.errors('src/engine/a.cc', '"executor/executor.h"'), [])
        self.assertEqual(len(self.errors('src/engine/a.cc', '"executor/local.h"')), 1)
        self.assertEqual(len(self.errors('src/engine/a.cc', '"runner/runner.h"')), 1)

    def test_heavy_headers_stay_out_of_ours(self):
        self.assertEqual(len(self.errors('src/api/a.h', '<nlohmann/json.hpp>')), 1)
        self.assertEqual(self.errors('src/api/a.cc', '<nlohmann/json.hpp>'), [])
        self.assertEqual(len(self.errors('src/server/a.cc', '<boost/beast.hpp>')), 1)
        self.assertEqual(self.errors('src/server/transport/a.cc', '<boost/beast.hpp>'), [])

    def test_paths_start_at_src_or_include(self):
        self.assertEqual(len(self.errors('src/base/a.cc', '"error.h"')), 1)


class Sizes(unittest.TestCase):
    def lengths(self, code):
        return [last - first + 1 for first, last in
                check_sizes.functions(check_sizes.blank(code))]

    def test_measures_each_function_of_a_class(self):
        self.assertEqual(self.lengths(
            'namespace a {\nclass CAPABILITY("m") B : public C {\n  int f() { return 1; }\n'
            '  B()\n      : x_{1},\n        y_(2) {\n    g();\n  }\n};\n}\n'), [1, 5])

    def test_braces_in_literals_and_comments_do_not_count(self):
        self.assertEqual(self.lengths(
            'void f() {\n  s = "{"; c = \'{\';  // {\n  r = R"(}{)"; n = 1\'000;\n}\nint g() {}\n'),
            [4, 1])

    def test_lambdas_belong_to_their_function_and_tables_are_no_functions(self):
        self.assertEqual(self.lengths(
            'constexpr int kTable[] = {\n  1,\n  2};\nauto f(int a)\n    -> int {\n'
            '  return [] { return 1; }();\n}\n'), [4])

    def test_a_function_that_returns_a_struct_is_a_function(self):
        self.assertEqual(self.lengths('struct Point Make(int a) {\n  return {};\n}\n'), [3])


class Links(unittest.TestCase):
    def test_files_and_headings(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / 'page.md'
            page.write_text('# One `two` & three\n## Same\n## Same\n```\n# Not one\n```\n')
            self.assertEqual(check_links.anchors(page), {'one-two--three', 'same', 'same-1'})
            self.assertIsNone(check_links.broken(page, '#same-1'))
            self.assertIsNone(check_links.broken(page, 'page.md#same'))
            self.assertIsNone(check_links.broken(page, 'https://example.com/#x'))
            self.assertIsNotNone(check_links.broken(page, '#not-one'))
            self.assertIsNotNone(check_links.broken(page, 'other.md'))


if __name__ == '__main__':
    unittest.main()
