#!/usr/bin/env python3
"""Checks that source files have at most 600 lines and C++ functions at most 80.

A function counts from the first line of its declaration to its closing brace, lambdas included.
Prints "file:line: what" per violation and exits with 1 if there is any.
"""
import pathlib
import re
import subprocess
import sys

MAX_FILE = 600
MAX_FUNCTION = 80
CXX = ('.h', '.cc', '.cu', '.cuh')
OTHER = ('.py', '.cmake', '.js', '.css', '.html')

TOKEN = re.compile(
    r'//(?:\\\n|[^\n])*'  # a comment; a backslash continues it
    r'|/\*.*?\*/'
    r'|R"(?P<delimiter>[^\s()\\]*)\(.*?\)(?P=delimiter)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # not a digit separator
    r'|^[ \t]*\#(?:\\\n|[^\n])*',  # preprocessor
    re.DOTALL | re.MULTILINE)

SCOPE = re.compile(r'\b(namespace|class|struct|union|enum|extern)\b')


def blank(text):
    """Returns the text with comments, literals and directives blanked: same length, same lines."""
    return TOKEN.sub(lambda m: re.sub(r'[^\n]', ' ', m.group()), text)


def match_braces(code):
    """Maps the position of each '{' to that of its '}'."""
    pairs, stack = {}, []
    for position in (m.start() for m in re.finditer(r'[{}]', code)):
        if code[position] == '{':
            stack.append(position)
        elif stack:
            pairs[stack.pop()] = position
    return pairs


def opens_scope(header):
    """Whether a '{' after `header` opens a namespace, class or enum rather than a function."""
    header = re.sub(r'\btemplate\s*<[^{;]*?>\s*(?=\w)', ' ', header)
    keyword = SCOPE.search(header)
    if not keyword:
        return False
    # `struct Point Make()` is a function: it has a parenthesis after a name that is no attribute.
    call = re.search(r'\b([a-z]\w*|[A-Z]\w*[a-z]\w*)\s*\(', header[keyword.end():])
    return not call or call.group(1) in ('alignas', '__attribute__', 'decltype')


def functions(code):
    """Yields (first line, last line) of each function in blanked code."""
    pairs = match_braces(code)
    start = position = 0  # `start`: start of the current declaration
    while True:
        found = re.search(r'[{};]', code[position:])
        if not found:
            return
        position += found.start()
        if code[position] != '{' or position not in pairs:
            position += 1
            start = position
            continue
        header, end = code[start:position], pairs[position]
        if opens_scope(header):
            position += 1
            start = position
            continue
        rest = code[end + 1:end + 200].lstrip()
        if rest.startswith((',', '{')):  # a member initializer, `a_{1}`; the body follows
            position = end + 1
            continue
        if '(' in header:
            first = start + len(header) - len(header.lstrip())
            yield code.count('\n', 0, first) + 1, code.count('\n', 0, end) + 1
        position = end + 1
        start = position


def main():
    listing = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard'], check=True,
                             capture_output=True, text=True).stdout.splitlines()
    errors = files = longest_file = longest_function = 0
    for name in sorted(listing):
        path = pathlib.Path(name)
        if path.suffix not in CXX + OTHER or not path.is_file():
            continue
        files += 1
        text = path.read_text(encoding='utf-8')
        lines = text.count('\n')
        longest_file = max(longest_file, lines)
        if lines > MAX_FILE:
            print(f'{name}:1: {lines} lines; a file has at most {MAX_FILE}: split it')
            errors += 1
        if path.suffix not in CXX:
            continue
        for first, last in functions(blank(text)):
            length = last - first + 1
            longest_function = max(longest_function, length)
            if length > MAX_FUNCTION:
                print(f'{name}:{first}: a function of {length} lines; at most {MAX_FUNCTION}')
                errors += 1
    print(f'sizes: {files} files, {errors} violations; longest file {longest_file} lines, '
          f'longest function {longest_function}')
    return 1 if errors else 0


if __name__ == '__main__':
    sys.exit(main())
