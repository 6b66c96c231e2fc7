#!/usr/bin/env python3
"""Checks that relative links and anchors in the tree's Markdown files have targets.

Prints "file:line: what" per broken link and exits with 1 if there is any.
"""
import pathlib
import re
import subprocess
import sys
import urllib.parse

LINK = re.compile(r'!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)')
REFERENCE = re.compile(r'^\s{0,3}\[[^\]]+\]:\s+(\S+)')
HEADING = re.compile(r'^(#{1,6})\s+(.*?)\s*#*\s*$')
FENCE = re.compile(r'^\s*(```|~~~)')


def prose(path):
    """Yields (number, line) outside code blocks, inline code removed."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(path):
    """The anchors of a page: its headings', as GitHub makes them, and explicit ids."""
    found, seen = set(), {}
    for _, line in prose(path):
        found.update(re.findall(r'(?:id|name)="([^"]+)"', line))
        heading = HEADING.match(line)
        if not heading:
            continue
        text = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading.group(2))
        slug = re.sub(r'[^\w\- ]', '', text.lower()).replace(' ', '-')
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        found.add(f'{slug}-{count}' if count else slug)
    return found


def broken(page, target):
    """Returns what is wrong with a link on `page`, or None."""
    if re.match(r'[a-z][a-z0-9+.-]*:', target):
        return None  # a link to another site
    file_part, _, anchor = target.partition('#')
    file = page if not file_part else page.parent / urllib.parse.unquote(file_part)
    if not file.exists():
        return f'no such file: {target}'
    if anchor and file.suffix == '.md' and anchor not in anchors(file):
        return f'no such heading: {target}'
    return None


def main():
    listing = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard', '*.md'], check=True,
                             capture_output=True, text=True).stdout.splitlines()
    errors = links = 0
    for name in sorted(set(listing)):
        page = pathlib.Path(name)
        if not page.is_file():
            continue
        for number, line in prose(page):
            text = re.sub(r'`[^`]*`', '', line)
            for target in LINK.findall(text) + REFERENCE.findall(text):
                links += 1
                problem = broken(page, target)
                if problem:
                    print(f'{name}:{number}: {problem}')
                    errors += 1
    print(f'links: {links} checked, {errors} broken')
    return 1 if errors else 0


if __name__ == '__main__':
    sys.exit(main())
