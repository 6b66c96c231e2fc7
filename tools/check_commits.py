#!/usr/bin/env python3
"""Checks the messages and sizes of the commits since BASE.

The subject must be "area: verb …". A commit changes at most 1,500 lines, not counting goldens,
corpora and recorded results, unless its message quotes the command that made the change. Ignores
merges. Skips shallow clones, whose oldest commits seem to add everything.
"""
import re
import subprocess
import sys

BASE = '8618a9a1951fead837263a0989a8e10289e32326'  # the newest commit before these rules
MAX_LINES = 1500
SUBJECT = re.compile(r'[\w./+-]+(, [\w./+-]+)*: [a-z]\w*\b.')
NO_SUBJECT = re.compile(r'\b(wip|fixup!|squash!)', re.IGNORECASE)
RECORDED = ('bench/results/', 'tests/fuzz/corpus/', 'tests/golden/')
# A command is indented or follows a prompt, and has an option, a path or a quoted argument.
COMMAND = re.compile(r'''^(\$[ ]|[ \t]+(\$[ ])?)
    (for[ ]\w+[ ]in[ ]|(clang-format|find|git[ ](ls-files|mv|grep)|perl|python3|sed)[ ]
     (.*[ ])?([-'"]|[^ \n]*[/*]))''', re.MULTILINE | re.VERBOSE)


def problems(message, changes):
    """Yields a commit's violations. `changes` are the lines of `git show --numstat`."""
    subject, _, body = message.partition('\n')
    if not SUBJECT.match(subject) or NO_SUBJECT.search(subject):
        yield f'the subject "{subject}" is not "area: verb …"'
    lines = 0
    for change in changes:
        added, removed, path = change.split('\t')
        if added != '-' and not path.startswith(RECORDED):
            lines += int(added) + int(removed)
    if lines > MAX_LINES and not COMMAND.search(body):
        yield (f'{lines} lines change, of at most {MAX_LINES}: split it, or quote the command that '
               'made the change in the message')


def git(*args):
    return subprocess.run(['git', *args], capture_output=True, text=True)


def main():
    listed = git('rev-list', '--no-merges', f'{BASE}..HEAD')
    if listed.returncode != 0 or git('rev-parse', '--is-shallow-repository').stdout == 'true\n':
        print('commits: this clone lacks the history, nothing was checked')
        return 0
    found = 0
    commits = listed.stdout.split()
    for commit in commits:
        message = git('show', '-s', '--format=%B', commit).stdout
        changes = git('show', '--numstat', '--no-ext-diff', '--format=', commit).stdout.splitlines()
        for problem in problems(message, filter(None, changes)):
            print(f'{commit[:9]}: {problem}')
            found += 1
    if not found:
        print(f'commits: clean ({len(commits)} since {BASE[:9]})')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
