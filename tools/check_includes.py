#!/usr/bin/env python3
"""Checks the includes in src/ and include/ against the table in docs/architecture.md.

Prints one line per violation, "file:line: rule", and exits with 1 if there is any.
"""
import pathlib
import re
import sys

PUBLIC = 'tokamak'  # include/tokamak

# Folder: folders that it may include directly; it may also include what those may include.
ALLOWED = {
    PUBLIC: [],
    'base': [PUBLIC],
    'images': ['base'],
    'tensor': ['base'],
    'step': ['base'],
    'rpc': ['step'],
    'quant': ['tensor'],
    'ops': ['quant', 'step'],
    'weights': ['ops'],
    'nn': ['weights'],
    'models': ['nn'],
    'runner': ['models'],
    'executor': ['runner', 'rpc'],
    'tokenizer': ['base'],
    'chat': ['base'],
    'grammar': ['base'],
    'engine': ['step'],
    'tokenizer/load': ['tokenizer', 'weights', 'chat'],
    'local': ['executor', 'engine', 'tokenizer/load', 'chat', 'grammar', 'images'],
    'server': ['tokenizer', 'chat', 'grammar', 'images'],
    'loadgen': ['server'],
    'cli': ['local', 'loadgen'],
}

# Single headers allowed across the table.
ALLOWED_HEADERS = {'engine': ['executor/executor.h']}

# Code that describes models must not know its backend. Tests may, because they must run on one.
# ops/count is no such backend: models use it to find out what they need.
BACKENDS = ['ops/reference/', 'ops/cpu/', 'ops/cuda/', 'ops/profile/']
BACKEND_FREE = ['quant', 'weights', 'nn', 'models']

# Headers that are slow to compile may not be included by ours, except forward declarations.
HEAVY = re.compile(r'(nlohmann/(?!json_fwd)|boost/|spdlog/|CLI/|pcre2|re2/|openssl/|cutlass/|flashinfer/|grpc)')
BEAST = re.compile(r'boost/beast|boost/asio/ssl')
BEAST_FOLDER = 'src/server/transport/'
# Shared within that folder; no other folder may include them.
BEAST_HEADERS = {f'server/transport/{name}.h' for name in (
    'byte_stream', 'client_connection', 'connection', 'host_lookups', 'tls', 'turns')}
# Coroutines of the server. Nothing outside src/server includes these.
TASK_HEADERS = {f'server/transport/{name}.h' for name in ('mailbox', 'response_writer')}
# A protocol of the server is one folder. Only what puts the server together knows of it.
PROTOCOL = 'server/openai/'
PROTOCOL_USERS = {'src/server/server.h', 'src/server/routes.h', 'src/server/routes.cc'}

INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')


def closure(folder):
    """All folders that `folder` may include, including itself."""
    reached, todo = set(), [folder]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += ALLOWED[name]
    return reached


def folder_of(parts):
    """The entry of ALLOWED that a path from src/ or include/ belongs to."""
    inner = '/'.join(parts[:2])
    return inner if inner in ALLOWED else parts[0]


def is_test(path):
    return path.stem.endswith(('_test', '_fuzz', '_bench')) or 'testing' in path.parts


def check_file(root, path):
    """Yields (line number, message) for each wrong include of a file."""
    relative = path.relative_to(root)
    folder = folder_of(relative.parts[1:])
    if folder not in ALLOWED:
        yield 1, f'folder "{folder}" is not in the include table of tools/check_includes.py'
        return
    allowed = closure(folder)
    for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        kind, name = match.groups()
        if kind == '<':
            inner = str(relative).removeprefix('src/') in BEAST_HEADERS | TASK_HEADERS
            if path.suffix == '.h' and HEAVY.match(name) and not is_test(path) and not inner:
                yield number, f'<{name}> is slow to compile: include it in .cc files only'
            if BEAST.match(name) and not str(relative).startswith(BEAST_FOLDER):
                yield number, f'<{name}> belongs in {BEAST_FOLDER} alone'
            continue
        if not any((root / base / f'{name}{template}').is_file()
                   for base in ('src', 'include') for template in ('', '.in')):
            yield number, f'"{name}" is not a path from src/ or include/'
            continue
        if name in BEAST_HEADERS and not str(relative).startswith(BEAST_FOLDER):
            yield number, f'"{name}" is for {BEAST_FOLDER} alone'
        if name in TASK_HEADERS and folder != 'server':
            yield number, f'"{name}" is for src/server alone'
        if (name.startswith(PROTOCOL) and folder == 'server' and not is_test(path) and
                not str(relative).startswith(f'src/{PROTOCOL}') and
                str(relative) not in PROTOCOL_USERS):
            yield number, f'"{name}" is for src/{PROTOCOL}, server.h and routes alone'
        target = folder_of(name.split('/'))
        if target not in allowed and name not in ALLOWED_HEADERS.get(folder, []):
            may = ', '.join(sorted(allowed - {folder})) or 'nothing else'
            yield number, f'{folder} must not include {target} ("{name}"); it may include {may}'
        elif (folder in BACKEND_FREE and not is_test(path) and
              any(name.startswith(backend) for backend in BACKENDS)):
            yield number, f'{folder} must not include a backend ("{name}"); use ops/*.h'


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.').resolve()
    files = [p for top in ('src', 'include') for p in sorted((root / top).rglob('*'))
             if p.suffix in ('.h', '.cc', '.cu', '.cuh')]
    errors = 0
    for path in files:
        for number, message in check_file(root, path):
            print(f'{path.relative_to(root)}:{number}: {message}')
            errors += 1
    page = (root / 'docs/architecture.md')
    if page.is_file():
        text = page.read_text(encoding='utf-8')
        for folder in sorted(p.name for p in (root / 'src').iterdir() if p.is_dir()):
            if f'`src/{folder}`' not in text:
                print(f'docs/architecture.md:1: its table of folders lacks `src/{folder}`')
                errors += 1
    print(f'includes: {len(files)} files, {errors} violations')
    return 1 if errors else 0


if __name__ == '__main__':
    sys.exit(main())
