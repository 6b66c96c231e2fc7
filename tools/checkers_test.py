"""Tests that each rule of the checkers can fail. Run: python3 -m unittest discover tools -p
'*_test.py'"""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import check_commits
import check_includes
import check_kernels
import check_links
import check_packaging
import check_sizes


class Commits(unittest.TestCase):
    def found(self, message, *changes):
        return len(list(check_commits.problems(message, changes)))

    def test_a_subject_is_an_area_and_a_verb(self):
        for good in ('scheduler: share tokens in turn', 'server, docs: refuse other spellings',
                     'tools/tidy.py: take a base'):
            self.assertEqual(self.found(good), 0, good)
        for bad in ('Share tokens in turn', 'scheduler: Share tokens', 'scheduler share: tokens',
                    'scheduler:', 'scheduler: wip on sharing', 'fixup! scheduler: share tokens'):
            self.assertEqual(self.found(bad), 1, bad)

    def test_a_commit_is_small_or_made_by_a_command(self):
        self.assertEqual(self.found('a: move it', '750\t750\tsrc/a.cc', '-\t-\ta.gguf',
                                    '9000\t0\ttests/golden/a.json'), 0)
        large = ('1000\t500\tsrc/a.cc', '1\t0\tsrc/b.cc')
        self.assertEqual(self.found('a: rename it\n\nBy hand.', *large), 1)
        self.assertEqual(self.found("a: rename it\n\n    sed -i 's/a/b/' src/*.cc", *large), 0)
        for command in ("$ find src -name '*.h'", '    for f in a b; do sed 1d $f; done',
                        '  $ git mv src/a.cc src/b.cc', '\tpython3 tools/rename.py'):
            self.assertEqual(self.found(f'a: rename it\n\n{command}', *large), 0, command)
        for prose in ('for sm_90a: two products', 'find src/a.cc again, under its other name',
                      '    for sm_90a: two products', '  find what is left', 'sed\n-n was used.'):
            self.assertEqual(self.found(f'a: rename it\n\n{prose}', *large), 1, prose)


class Kernels(unittest.TestCase):
    def errors(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.write_text(text)
            return list(check_kernels.check_file(pathlib.Path(folder), path))

    def test_launches_shared_memory_and_ptx_have_their_headers(self):
        for text, home in (('F<<<1, 32>>>(a);', None), ('F<<<1,\n32>>>\n(a);', None),
                           ('__shared__ float x[4];', 'launch.h'),
                           ('asm volatile("bar.sync 0;");', 'ptx.h'),
                           ('#if __CUDA_ARCH__ >= 900\n#endif', 'ptx.h'),
                           ('#ifdef __CUDACC__\n#endif', 'launch.h')):
            self.assertEqual(len(self.errors('a.cu', text)), 1, text)
            if home:
                self.assertEqual(self.errors(home, text), [])

    def test_comments_and_strings_are_no_code(self):
        self.assertEqual(self.errors('a.cu', '// __shared__\nconst char* a = "asm <<<";'), [])
        self.assertEqual(self.errors('a.cu', 'x = a << (b >> (c)); f<g<h<int>>>(1);'), [])


class Includes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ('base/error.h', 'tensor/tensor.h', 'ops/ops.h', 'ops/cpu/gemm.h', 'nn/pass.h',
                     'executor/executor.h', 'executor/local.h', 'runner/runner.h',
                     'server/openai/request.h'):
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
        self.assertEqual(len(self.errors('src/local/a.h', '<nlohmann/json.hpp>')), 1)
        self.assertEqual(self.errors('src/local/a.cc', '<nlohmann/json.hpp>'), [])
        self.assertEqual(self.errors('src/local/a.h', '<nlohmann/json_fwd.hpp>'), [])
        self.assertEqual(len(self.errors('src/server/a.cc', '<boost/beast.hpp>')), 1)
        self.assertEqual(self.errors('src/server/transport/a.cc', '<boost/beast.hpp>'), [])
        self.assertEqual(len(self.errors('src/server/transport/a.h', '<boost/asio.hpp>')), 1)
        self.assertEqual(self.errors('src/server/transport/tls.h', '<boost/asio.hpp>'), [])

    def test_a_protocol_of_the_server_is_known_to_its_folder_and_the_routes(self):
        for known in ('server.h', 'routes.h', 'routes.cc', 'openai/a.cc', 'access/a_test.cc'):
            self.assertEqual(self.errors(f'src/server/{known}', '"server/openai/request.h"'), [])
        for other in ('server.cc', 'access/a.cc', 'monitor/a.h'):
            self.assertEqual(len(self.errors(f'src/server/{other}', '"server/openai/request.h"')), 1)

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


class Packaging(unittest.TestCase):
    DOCKERFILE = """\
FROM debian:12 AS build
COPY tools tools
RUN apt-get install -y --no-install-recommends g++ \\
 && rm -rf /var/lib/apt/lists/*
FROM debian:12-slim
COPY --from=build /tokamak /usr/bin/tokamak
USER 10001
STOPSIGNAL SIGTERM
HEALTHCHECK CMD ["true"]
ENTRYPOINT ["/usr/bin/tokamak"]
"""

    def test_a_dockerfile_has_what_it_copies_and_does_not_run_as_root(self):
        def problems(old='', new=''):
            self.assertIn(old, self.DOCKERFILE)
            return check_packaging.docker_problems(self.DOCKERFILE.replace(old, new),
                                                   check_packaging.ROOT)
        self.assertEqual(problems(), [])
        for old, new in ((':12-slim', ''), (':12-slim', ':latest'), ('tools tools', 'nothing x'),
                         ('--from=build', '--from=other'), ('USER 10001', 'USER root'),
                         ('USER 10001\n', ''), ('COPY tools', 'COPPY tools'),
                         ('--no-install-recommends', ''), ('STOPSIGNAL SIGTERM', ''),
                         ('["/usr/bin/tokamak"]', '/usr/bin/tokamak')):
            self.assertEqual(len(problems(old, new)), 1, (old, new))

    def test_a_unit_is_verified_and_hardened(self):
        if not shutil.which('systemd-analyze'):
            self.skipTest('no systemd-analyze')
        unit = (check_packaging.ROOT / 'packaging/systemd/tokamak.service').read_text()
        self.assertEqual(check_packaging.unit_problems(unit), [])
        self.assertNotEqual(check_packaging.unit_problems(unit + '[Service]\nNoSuchKey=1\n'), [])
        weak = '\n'.join(line for line in unit.splitlines() if not line.startswith('Protect'))
        self.assertNotEqual(check_packaging.unit_problems(weak), [])

    def test_a_dashboard_names_documented_metrics(self):
        docs = '| `tokamak_a` | gauge | a |\n| `tokamak_b_seconds` | histogram | b |\n'
        def problems(*queries):
            panels = [{'id': i, 'targets': [{'expr': q}]} for i, q in enumerate(queries)]
            return check_packaging.dashboard_problems(json.dumps({'panels': panels}), docs)
        self.assertEqual(problems('sum(tokamak_a)', 'rate(tokamak_b_seconds_bucket[1m])'), [])
        self.assertEqual(len(problems('sum(tokamak_c)')), 1)
        self.assertEqual(len(check_packaging.dashboard_problems('{', docs)), 1)


if __name__ == '__main__':
    unittest.main()
