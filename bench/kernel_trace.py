#!/usr/bin/env python3
"""Says where the time of a decode step goes, from what kernel_trace.cc wrote.

Takes the last steps that ran one graph. Dependent launches overlap, so a kernel's own time says
little: "adds" is the time from the moment when all kernels before it have ended to its own end.

  kernel_trace.py TRACE [--graph N]     N: a graph by its number; default: the last one
"""
import argparse
import collections
import re
import statistics
import subprocess


def read(path):
    """Kernels by graph, in order of their beginnings."""
    graphs = collections.defaultdict(list)
    with open(path, encoding='utf-8') as file:
        for line in file:
            begin, duration, graph, node, ctas, name = line.rstrip('\n').split(' ', 5)
            if graph != '0':
                graphs[int(graph)].append((int(begin), int(duration), node, ctas, name))
    return {graph: sorted(kernels) for graph, kernels in graphs.items()}


def steps_of(kernels, most=8):
    """The last complete launches of a graph. They begin with the same node."""
    starts = [i for i, kernel in enumerate(kernels) if kernel[2] == kernels[0][2]]
    steps = [kernels[a:b] for a, b in zip(starts, starts[1:] + [len(kernels)])]
    usual = statistics.mode(map(len, steps))  # the last one may be cut off
    return [step for step in steps if len(step) == usual][-most:]


def short(name):
    """Without namespaces, arguments and what a compiler adds."""
    plain = subprocess.run(['c++filt', name], capture_output=True, text=True, check=False).stdout
    plain = re.sub(r'\(anonymous namespace\)::|<unnamed>::|tokamak::cuda::|^void ', '', plain.strip())
    return re.sub(r'\(.*', '', plain)[:60]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('trace')
    parser.add_argument('--graph', type=int)
    args = parser.parse_args()
    graphs = read(args.trace)
    if not graphs:
        raise SystemExit(f'{args.trace}: no kernel ran in a graph')
    last = max(graphs, key=lambda graph: graphs[graph][-1][0])
    if args.graph is not None and args.graph not in graphs:
        raise SystemExit(f'{args.trace}: no graph {args.graph} (there are: {sorted(graphs)})')
    steps = steps_of(graphs[args.graph or last])
    whole = [max(k[0] + k[1] for k in step) - step[0][0] for step in steps]
    print(f'graph {args.graph or last}: {len(steps)} steps of {len(steps[0])} kernels, '
          f'{statistics.median(whole) / 1000:.1f} us')
    adds, durations, counts = collections.Counter(), collections.Counter(), collections.Counter()
    for step in steps:
        end = step[0][0]
        for begin, duration, _, ctas, name in step:
            key = name, ctas
            adds[key] += max(0, begin + duration - end)
            durations[key] += duration
            counts[key] += 1
            end = max(end, begin + duration)
    print('adds, us  kernels  each adds  lasts  CTAs  name')
    for key, total in adds.most_common():
        name, ctas = key
        print(f'{total / len(steps) / 1000:8.1f} {counts[key] // len(steps):8} '
              f'{total / counts[key] / 1000:10.2f} {durations[key] / counts[key] / 1000:6.1f} '
              f'{ctas:>5}  {short(name)}')


if __name__ == '__main__':
    main()
