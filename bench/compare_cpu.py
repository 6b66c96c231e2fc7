#!/usr/bin/env python3
"""The measuring part of compare_cpu.sh: runs the engines in turn and prints a table."""
import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

import compare_chats
from compare_engines import IkLlamaCpp, LlamaCpp, Tokamak

# name: title, streams, prompt tokens, output tokens. Measures the prompt's rate if there is no
# output, else the rate of decoding only, over all streams.
ROWS = {
    'prompt': ('prompt of 512', 1, 512, 0),
    'one': ('1 stream, 128 tokens from an empty context', 1, 0, 128),
    'eight': ('8 streams, 128 + 128 tokens, total', 8, 128, 128),
    'thirty-two': ('32 streams, 128 + 128 tokens, total', 32, 128, 128),
    # Shorter, for models with billions of parameters.
    'prompt-256': ('prompt of 256', 1, 256, 0),
    'one-32': ('1 stream, 32 tokens from an empty context', 1, 0, 32),
    'eight-32': ('8 streams, 16 + 32 tokens, total', 8, 16, 32),
    'long-prompt': ('prompt of 8000', 1, 8000, 0),
    'long': ('1 stream, 64 tokens after 8000', 1, 8000, 64),
}

CHATS = 'chats'
UNASKED = ('prompt', 'one', 'eight', 'thirty-two')


def say(text):
    print(text, file=sys.stderr, flush=True)


def default_cpus():
    """One hardware thread of each physical core that this process may use."""
    chosen, seen = [], set()
    for cpu in sorted(os.sched_getaffinity(0)):
        topology = pathlib.Path(f'/sys/devices/system/cpu/cpu{cpu}/topology')
        try:
            core = ((topology / 'physical_package_id').read_text(),
                    (topology / 'core_id').read_text())
        except OSError:
            core = cpu
        if core not in seen:
            seen.add(core)
            chosen.append(cpu)
    return ','.join(map(str, chosen))


def count_cpus(spec):
    total = 0
    for part in spec.split(','):
        first, _, last = part.partition('-')
        total += int(last or first) - int(first) + 1
    return total


def first_line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return (done.stdout or done.stderr).splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return 'unknown'


def describe_machine(args, threads):
    cpuinfo = pathlib.Path('/proc/cpuinfo').read_text()

    def field(name):
        found = re.search(rf'^{name}\s*: (.*)$', cpuinfo, re.MULTILINE)
        return found.group(1) if found else 'unknown'

    wanted = re.compile(r'avx|fma|f16c|amx|vnni|asimddp|i8mm|bf16|sve')
    memory = re.search(r'MemTotal:\s*(\d+) kB', pathlib.Path('/proc/meminfo').read_text())
    return {
        'cpu': f'{field("model name")} (family {field("cpu family")}, model {field("model")})',
        'flags': ' '.join(f for f in (field('flags') + ' ' + field('Features')).split()
                          if wanted.search(f)),
        'cores': f'{os.cpu_count()} visible; used: {args.cpus} ({threads} threads)',
        'memory': f'{int(memory.group(1)) / 2**20:.1f} GiB',
        'kernel': platform.release(),
        'compiler': first_line(['c++', '--version']),
        'load before': ' '.join(f'{x:.2f}' for x in os.getloadavg()),
        'date': time.strftime('%Y-%m-%d', time.gmtime()),
    }


class Log:
    """Writes a JSON line for each measurement as it is made."""

    def __init__(self, path):
        self.file = open(path, 'w', encoding='utf-8') if path else None

    def write(self, **entry):
        if self.file:
            self.file.write(json.dumps(entry) + '\n')
            self.file.flush()


def spread(values):
    middle = statistics.median(values)
    digits = 0 if middle >= 100 else 1
    return f'{middle:,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})'


def attempt(engine, setting, row, log, run):
    """Returns one measurement, or None, with a message on stderr, if the engine fails. Run 0, the
    search for the best settings, uses a quarter of the tokens if there are many."""
    _, streams, prompt, output = ROWS[row]
    part = 4 if run == 0 and (streams > 1 or prompt > 2048) else 1
    try:
        value = engine.measure(setting, streams, prompt // part, output // part)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        say(f'  {engine.name} {setting}: {error}')
        return None
    say(f'  {engine.name} {setting}: {value:.1f}')
    log.write(row=row, engine=engine.name, setting=str(setting), run=run, tok_s=value)
    return value


def compare_row(row, ours, others, args, log):
    """Returns {engine: (setting, values)} for one row: the measurements of the best setting."""
    chosen = [(engine, engine.settings()[0]) for engine in ours]
    for engine in others:
        settings = engine.settings(streams=ROWS[row][1])
        if not args.quick and len(settings) > args.finalists:
            say(f'{row}: looking for the best settings of {engine.name}')
            tried = [(attempt(engine, s, row, log, run=0), s) for s in settings]
            settings = [s for value, s in sorted(
                (t for t in tried if t[0] is not None), key=lambda t: -t[0])]
        chosen += [(engine, s) for s in settings[:args.finalists]]
    values = {}
    for run in range(1, args.runs + 1):
        say(f'{row}: run {run} of {args.runs}')
        for engine, setting in chosen:
            value = attempt(engine, setting, row, log, run)
            if value is not None:
                values.setdefault((engine.name, str(setting)), []).append(value)
    best = {}
    for (name, setting), found in values.items():
        if name not in best or statistics.median(found) > statistics.median(best[name][1]):
            best[name] = (setting, found)
    return best


def table(results, ours, others):
    """Returns Markdown: a row per comparison, with our ratios to the best of the others at the end."""
    engines = ours + others
    lines = ['| tok/s, median (min–max) | ' + ' | '.join(e.name for e in engines) +
             ' | ratio |', '|---|' + '---|' * (len(engines) + 1)]
    for title, best in results:
        cells = []
        for engine in engines:
            if engine.name in best:
                setting, values = best[engine.name]
                cells.append(f'{spread(values)} {setting}')
            else:
                cells.append('–')
        theirs = [statistics.median(best[e.name][1]) for e in others if e.name in best]
        ratio = ' / '.join(f'{statistics.median(best[e.name][1]) / max(theirs):.2f}×'
                           if theirs and e.name in best else '–' for e in ours)
        lines.append(f'| {title} | ' + ' | '.join(cells) + f' | {ratio} |')
    return '\n'.join(lines)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--tokamak', required=True)
    parser.add_argument('--model', required=True)
    parser.add_argument('--peers', required=True, type=pathlib.Path)
    parser.add_argument('--ik', help='a checkout of ik_llama.cpp')
    parser.add_argument('--cpus', default=default_cpus())
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--rows', default='')
    parser.add_argument('--finalists', type=int, default=2,
                        help='settings of each engine that are measured in full')
    parser.add_argument('--avx2', action='store_true')
    parser.add_argument('--isa', default='auto', help='ours, a column for each; default: auto')
    parser.add_argument('--same-file', action='store_true',
                        help='the others run --model itself (llama.cpp plain and repacked), no other types of it')
    parser.add_argument('--json')
    parser.add_argument('--quick', action='store_true')
    args = parser.parse_args()
    # llama-server would serve other types of the model.
    known = list(ROWS) + ([] if args.avx2 or args.same_file else [CHATS])
    if args.avx2 and args.isa != 'auto':
        parser.error('--isa and --avx2 exclude each other')
    args.rows = args.rows.split(',') if args.rows else [r for r in known if r in UNASKED + (CHATS,)]
    for row in args.rows:
        if row not in known:
            parser.error(f'--rows: "{row}" is none of {", ".join(known)}')
    if args.quick:
        args.runs = args.finalists = 1
        for row, (title, streams, prompt, output) in ROWS.items():
            ROWS[row] = (title + ' (shortened)', streams, min(prompt, 32), min(output, 8))
    return args


def main():
    args = parse_args()
    threads = count_cpus(args.cpus)
    machine = describe_machine(args, threads)
    kind = '-avx2' if args.avx2 else ''
    ours = [Tokamak(args, threads, isa) for isa in (['avx2'] if args.avx2 else args.isa.split(','))]
    others = [LlamaCpp(args, threads, args.peers / f'llama.cpp{kind}/bin')]
    if args.ik:
        others.append(IkLlamaCpp(args, threads, args.peers / f'ik_llama.cpp{kind}/bin'))
    machine['versions'] = '; '.join(e.version() for e in ours[:1] + others)
    log = Log(args.json)
    log.write(machine=machine)
    results = []
    for row in args.rows:
        if row == CHATS:
            results += compare_chats.compare(args, ours[0], others[0], log)
        else:
            results.append((ROWS[row][0], compare_row(row, ours, others, args, log)))
    for title, best in results:
        for name, (setting, values) in best.items():
            log.write(result=title, engine=name, setting=setting, tok_s=values,
                      median=statistics.median(values))
    print(table(results, ours, others) + '\n')
    for name, value in machine.items():
        print(f'- {name}: {value}')


if __name__ == '__main__':
    main()
