#!/usr/bin/env python3
"""Runs clang-tidy on changed sources and, for a changed header that none of them includes, on one
source that does: a header's problems show in any source that includes it.

Changed means different from the commit --base (by default TOKAMAK_TIDY_BASE, else 20 commits back,
fewer if the history is shorter), committed or not. Needs a finished build, which knows the
includes. Skips a source that was clean before with the same content, headers and configuration.
Exits with 1 on any warning.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

EXTRA = ['--extra-arg=-Wthread-safety', '--extra-arg=-Wno-unknown-warning-option',
         '--extra-arg=-Wno-unused-command-line-argument', '--extra-arg=-Qunused-arguments']


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def default_base():
    base = os.environ.get('TOKAMAK_TIDY_BASE')
    if base:
        return base
    history = output('git', 'rev-list', '--first-parent', '--max-count=21', 'HEAD').split()
    if len(history) < 21:  # shorter history: compare with the empty tree
        return output('git', 'hash-object', '-t', 'tree', '/dev/null').strip()
    return history[-1]


def dependencies(build, root):
    """Maps each object file to the files of the tree from which it was made (ninja -t deps)."""
    found, current = {}, None
    for line in output('ninja', '-C', build, '-t', 'deps').splitlines():
        if line.startswith('ninja:') or not line.strip():
            current = None
        elif not line.startswith(' '):
            current = found.setdefault(line.split(':')[0], set())
        elif current is not None:
            path = os.path.normpath(os.path.join(build, line.strip()))
            if path.startswith(root + os.sep) and not path.startswith(build + os.sep):
                current.add(path)
    return found


def fingerprint(entry, files, config):
    digest = hashlib.sha256(config)
    digest.update(entry['command'].encode())
    for path in sorted(files):
        digest.update(path.encode() + b'\0' + pathlib.Path(path).read_bytes() + b'\0')
    return digest.hexdigest()


def select(args, root):
    """Returns [(source, fingerprint)] of the sources to check."""
    changed = set(output('git', 'diff', '--name-only', args.base).splitlines())
    changed |= set(output('git', 'ls-files', '-o', '--exclude-standard').splitlines())
    changed = {os.path.join(root, name) for name in changed}
    deps = dependencies(args.build, root)
    config = pathlib.Path(root, '.clang-tidy').read_bytes() + ' '.join(EXTRA).encode()
    config += output('clang-tidy', '--version').encode()
    entries = {}  # source -> its compile command and the files from which it is made
    for entry in json.loads(pathlib.Path(args.build, 'compile_commands.json').read_text()):
        source = os.path.normpath(os.path.join(entry['directory'], entry['file']))
        if source in entries or source.startswith(args.build + os.sep):
            continue
        target = entry.get('output') or entry['command'].split(' -o ')[1].split()[0]
        files = deps.get(os.path.relpath(os.path.join(args.build, target), args.build), set())
        if not files:
            print(f'tidy: {os.path.relpath(source, root)} is not built yet; checked regardless')
            changed.add(source)
        entries[source] = entry, files | {source}
    chosen = set(entries) if args.all else changed & set(entries)
    seen = set().union(*(entries[source][1] for source in chosen))
    for header in sorted(changed - seen):
        includer = min((s for s in entries if header in entries[s][1]),
                       key=lambda s: (os.path.splitext(s)[0] != os.path.splitext(header)[0], s),
                       default=None)
        if includer:
            chosen.add(includer)
    return [(source, fingerprint(entry, files, config))
            for source, (entry, files) in entries.items() if source in chosen]


def check(build, source):
    start = time.monotonic()
    result = subprocess.run(['clang-tidy', '-p', build, '--quiet', *EXTRA, source],
                            capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return result.returncode, result.stdout, result.stderr, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--build', default='build', help='build folder (default: build)')
    parser.add_argument('--base', default=None, help='commit to compare with')
    parser.add_argument('--all', action='store_true', help='check every source')
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    args = parser.parse_args()
    root = output('git', 'rev-parse', '--show-toplevel').strip()
    args.build = os.path.abspath(args.build)
    args.base = args.base or default_base()
    cache = os.environ.get('XDG_CACHE_HOME', '')
    if not cache.startswith('/'):
        cache = os.path.expanduser('~/.cache')
    clean = pathlib.Path(cache, 'tokamak', 'tidy')
    clean.mkdir(parents=True, exist_ok=True)

    chosen = select(args, root)
    todo = [(s, f) for s, f in chosen if not (clean / f).exists()]
    failed, seconds = 0, 0.0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        runs = {pool.submit(check, args.build, s): (s, f) for s, f in todo}
        for run in concurrent.futures.as_completed(runs):
            source, mark = runs[run]
            status, out, err, took = run.result()
            seconds += took
            if status == 0:
                (clean / mark).touch()
            else:
                failed += 1
                print(out or err, end='', flush=True)
    print(f'tidy: {len(chosen)} sources for what changed since '
          f'{args.base[:12]}, {len(chosen) - len(todo)} known to be clean, {failed} with warnings; '
          f'{seconds:.0f} s of one core')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
