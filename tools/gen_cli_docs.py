#!/usr/bin/env python3
"""Writes the man page and shell completions from the program's own help.

gen_cli_docs.py PROGRAM MAN_TEMPLATE OUTPUT_FOLDER: runs `PROGRAM [COMMAND...] --help` and writes
tokamak.1 (the template with @OPTIONS@ filled in), tokamak.bash, _tokamak and tokamak.fish.
"""
import dataclasses
import pathlib
import re
import subprocess
import sys

# "  -p,--prompt TEXT ...   what it does", as CLI11 prints it. A long option's description starts
# below.
OPTION = re.compile(r'^ {2,}(-{1,2}[A-Za-z][^\s]*)(?: (\S.*?))?(?:\s{2,}(\S.*))?$')
ENTRY = re.compile(r'^ {2,}([a-z][a-z0-9-]*)\s{2,}(\S.*)$')
SECTION = re.compile(r'^([A-Z][A-Za-z ]*):\s*$')


@dataclasses.dataclass
class Option:
    names: list        # ['-p', '--prompt']
    value: str         # 'TEXT', empty for a flag
    description: str


@dataclasses.dataclass
class Command:
    path: list         # ['bench', 'latency']; [] is the program
    description: str
    options: list
    commands: list


def parse(text):
    """Returns (options, [(subcommand, description)]) of a --help text."""
    options, commands, section, last = [], [], '', None
    for line in text.splitlines():
        title = SECTION.match(line)
        if title:
            section, last = title.group(1).lower(), None
            continue
        entry = ENTRY.match(line) if section == 'subcommands' else None
        option = OPTION.match(line) if section != 'subcommands' else None
        if entry:
            commands.append(entry.groups())
        elif option:
            names, value, description = option.groups(default='')
            last = Option(names.split(','), value.split(':')[0].split(' ')[0], description)
            options.append(last)
        elif last and line.startswith(' ' * 8) and line.strip():
            last.description = f'{last.description} {line.strip()}'.strip()
        elif not line.strip():
            last = None
    return options, commands


def ask(program, path, description=''):
    text = subprocess.run([program, *path, '--help'], check=True, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL).stdout
    options, commands = parse(text)
    return Command(path, description, options,
                   [ask(program, path + [name], about) for name, about in commands])


def walk(command):
    yield command
    for below in command.commands:
        yield from walk(below)


def roff(text):
    escaped = text.replace('\\', r'\e').replace('-', r'\-')
    return r'\&' + escaped if escaped.startswith(('.', "'")) else escaped


def man_options(root):
    lines = []
    for command in walk(root):
        if not command.options:
            continue
        lines.append(f'.SS {roff(" ".join(["tokamak"] + command.path))}')
        for option in command.options:
            names = ', '.join(rf'\fB{roff(name)}\fR' for name in option.names)
            value = rf' \fI{roff(option.value)}\fR' if option.value else ''
            lines += ['.TP', names + value, roff(option.description)]
    return '\n'.join(lines)


def bash(root):
    cases = '\n'.join(
        f'    "{" ".join(c.path)}") words="{" ".join(n for o in c.options for n in o.names)}'
        f'{"".join(" " + b.path[-1] for b in c.commands)}" ;;' for c in walk(root))
    known = '|'.join(f'"{" ".join(c.path)}"' for c in walk(root) if c.path)
    return f'''# bash completion for tokamak
_tokamak() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} path= words= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "${{path:+$path }}${{COMP_WORDS[i]}}" in
      {known}) path="${{path:+$path }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ -n $path && $word != -* ]]; then COMPREPLY+=($(compgen -f -- "$word")); fi
}}
complete -o filenames -F _tokamak tokamak
'''


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def zsh_options(command):
    for option in command.options:
        about = re.sub(r'([\[\]:])', r'\\\1', option.description)
        for name in option.names:
            value = f':{option.value.lower()}:_files' if option.value else ''
            yield quoted(f'{name}[{about}]{value}')


def zsh(root):
    lines = ['#compdef tokamak', '_tokamak() {', '  local state line', '  local -a commands']
    names = ' '.join(quoted(f'{c.path[0]}:{c.description}') for c in root.commands)
    lines += [f'  commands=({names})',
              f"  _arguments -C {' '.join(zsh_options(root))} '1: :->command' '*:: :->arguments'",
              '  case $state in', "    command) _describe command commands ;;",
              '    arguments)', '      case $line[1] in']
    for command in root.commands:
        options = ' '.join(dict.fromkeys(o for c in walk(command) for o in zsh_options(c)))
        first = ''
        if command.commands:
            first = quoted('1:command:(' + ' '.join(c.path[-1] for c in command.commands) + ')')
        lines.append(f"        {command.path[0]}) _arguments {options} {first} '*:file:_files' ;;")
    return '\n'.join(lines + ['      esac ;;', '  esac', '}', '_tokamak "$@"', ''])


def fish(root):
    lines = ['# fish completion for tokamak']
    for command in walk(root):
        seen = '; and '.join(f'__fish_seen_subcommand_from {name}' for name in command.path)
        below = ' '.join(c.path[-1] for c in command.commands)
        for sub in command.commands:
            when = f'not __fish_seen_subcommand_from {below}'
            if seen:
                when = f'{seen}; and {when}'
            no_files = '' if command.path else ' -f'
            lines.append(f'complete -c tokamak{no_files} -n {quoted(when)} -a {sub.path[-1]} '
                         f'-d {quoted(sub.description)}')
        for option in command.options:
            names = ' '.join(f'-l {n[2:]}' if n.startswith('--') else f'-s {n[1:]}'
                             for n in option.names)
            value = ' -r' if option.value else ''
            when = seen or '__fish_use_subcommand'
            lines.append(f'complete -c tokamak -n {quoted(when)} {names}{value} '
                         f'-d {quoted(option.description)}')
    return '\n'.join(lines) + '\n'


def main():
    program, template, folder = sys.argv[1:4]
    root = ask(program, [])
    if not root.commands or not any(c.options for c in root.commands):
        sys.exit(f'{program} --help: no commands or no options found; has its form changed?')
    out = pathlib.Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    page = pathlib.Path(template).read_text(encoding='utf-8')
    synopsis, _, rest = page.partition('\n.SH DESCRIPTION')
    undescribed = [c.path[0] for c in root.commands
                   if f'\n.B tokamak {roff(c.path[0])}' not in synopsis or
                   f'\n.B {c.path[0]}' not in rest]
    if undescribed:
        sys.exit(f'{template}: not in its synopsis or not described: {", ".join(undescribed)}')
    (out / 'tokamak.1').write_text(page.replace('@OPTIONS@', man_options(root)))
    (out / 'tokamak.bash').write_text(bash(root))
    (out / '_tokamak').write_text(zsh(root))
    (out / 'tokamak.fish').write_text(fish(root))


if __name__ == '__main__':
    main()
