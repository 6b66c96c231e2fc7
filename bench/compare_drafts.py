#!/usr/bin/env python3
"""What drafts give here and in llama.cpp's llama-server, on the tasks of compare_speculation.py, to one client.

Usage: compare_drafts.py TOKAMAK LLAMA_SERVER MODEL.gguf [--draft-model SMALL.gguf] [--tasks editing,prose]
                         [--runs N] [--threads N]

Servers take turns, each turn with a new one: ours without drafts, with prompt lookup as it is by default, and
with the draft model if one is given; llama-server without drafts, with each of its methods that look for n-grams
in the text, as they are by default and once with shorter n-grams, and with the draft model. Prints tokens per
second without the prompts' time, medians with the least and the most, how many drafts were accepted, and the
ratio to the same server without drafts. Each turn is reported on stderr. A method that fails there, such as one
that a version of llama-server does not have, is left out.
"""
import argparse
import statistics
import sys

import compare_chats
import compare_speculation


def kinds_of(args):
    """Returns options by server and method; each server's first has no drafts."""
    ours = {'off': ['--speculate', 'off'], 'ngram (default)': []}
    theirs = {'none': []} | {kind: ['--spec-type', kind] for kind in (
        'ngram-simple', 'ngram-map-k', 'ngram-map-k4v', 'ngram-mod', 'ngram-cache')}
    theirs['ngram-simple, n-grams of 4, 8 drafts'] = [
        '--spec-type', 'ngram-simple', '--spec-ngram-simple-size-n', '4', '--spec-ngram-simple-size-m', '8']
    if args.draft_model:
        ours['draft'] = ['--speculate', 'draft', '--draft-model', args.draft_model]
        theirs['draft-simple'] = ['--spec-type', 'draft-simple', '--spec-draft-model', args.draft_model,
                                  '--spec-draft-threads', args.threads]
    return {'tokamak': ours, 'llama-server': theirs}


def command_of(args, server, options):
    if server == 'tokamak':
        command = [args.tokamak, 'serve', args.model, '--device', 'cpu']
    else:
        command = [args.llama_server, '-m', args.model, '-np', '1', '-c', '4096', '--no-webui']
    return [*command, '--threads', args.threads, *options]


def take_turn(args, server, options, bodies):
    """Returns tokens per second, drafts and accepted ones of a new server."""
    with compare_chats.serving(command_of(args, server, options)) as url:
        answers = [compare_speculation.post(url, body) for body in bodies]
    timings = [answer['timings'] for answer in answers]
    milliseconds = 'decode_ms' if server == 'tokamak' else 'predicted_ms'
    seconds = sum(timing[milliseconds] for timing in timings) / 1e3
    tokens = sum(answer['usage']['completion_tokens'] - 1 for answer in answers)  # the first comes with the prompt
    return (tokens / seconds, sum(timing.get('draft_n', 0) for timing in timings),
            sum(timing.get('draft_n_accepted', 0) for timing in timings))


def run_turns(args, task, bodies):
    """Returns the results of all turns by (server, method)."""
    turns = {(server, name): [] for server, kinds in kinds_of(args).items() for name in kinds}
    for run in range(args.runs):
        for server, kinds in kinds_of(args).items():
            for name, options in kinds.items():
                if (server, name) not in turns:
                    continue
                try:
                    result = take_turn(args, server, options, bodies)
                except (RuntimeError, OSError, KeyError, ZeroDivisionError) as error:
                    if name == next(iter(kinds)):
                        raise  # there would be nothing to compare with
                    print(f'{task}, {server} {name}: left out: {error!r}', file=sys.stderr, flush=True)
                    del turns[server, name]
                    continue
                turns[server, name].append(result)
                print(f'{task}, run {run + 1}, {server} {name}: {result[0]:.1f} tokens/s, {result[2]} of '
                      f'{result[1]} drafts accepted', file=sys.stderr, flush=True)
    return turns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('tokamak')
    parser.add_argument('llama_server')
    parser.add_argument('model')
    parser.add_argument('--draft-model')
    parser.add_argument('--tasks', default='editing,prose')
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--threads', default='2')
    args = parser.parse_args()
    for task, bodies in compare_speculation.make_tasks(args.tasks.split(',')).items():
        plain = {}
        for (server, name), values in run_turns(args, task, bodies).items():
            rates = [rate for rate, _, _ in values]
            plain.setdefault(server, rates)
            ratio = statistics.median(rate / base for rate, base in zip(rates, plain[server]))
            _, drafts, accepted = values[-1]
            print(f'{task}, {server} {name}: {statistics.median(rates):.1f} ({min(rates):.1f} to '
                  f'{max(rates):.1f}) tokens/s, ratio {ratio:.2f}, {accepted} of {drafts} drafts accepted',
                  flush=True)


if __name__ == '__main__':
    main()
