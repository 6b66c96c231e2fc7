#!/usr/bin/env python3
"""Speed with and without speculative decoding, over HTTP, and whether the answers are the same.

Usage: compare_speculation.py TOKAMAK MODEL.gguf [--runs N] [--tasks editing,copying,prose]
                              [--clients 1,8,32]

Servers take turns: two with `--speculate off`, which show what differs by chance, and one with the default. Each
turn has a new server, which has seen the prompts. The tasks:
  editing   the 20 of editing_tasks/tasks.json, which repeat parts of their prompts (greedy, up to 200 tokens)
  copying   passages of texts/prose.txt, to copy: a passage twice, the second time without its end (greedy)
  prose     these passages, to continue (temperature 0.7)
Prints tokens per second, medians with the least and the most: of one client without the prompts' time, of
several all together. Then, for one client, the tokens of a step and what a step costs in comparison with one
without drafts, as `bench latency --synthetic-acceptance 0` measures it for the same numbers of drafts.
"""
import argparse
import concurrent.futures
import itertools
import json
import pathlib
import statistics
import subprocess
import threading
import time
import urllib.request

import compare_chats

HERE = pathlib.Path(__file__).parent
PASSAGE = 700  # characters
COUNT = 8  # passages
START, WINDOW = 1, 6  # seconds of several clients: before the tokens are counted, and while they are
TOKENS = 'tokamak_generation_tokens_total'
METRIC = 'tokamak_spec_decode_num_'
MOST_DRAFTS = 4  # the default of --draft-tokens


def make_tasks(names):
    text = (HERE / 'texts/prose.txt').read_text()
    passages = [text[i * len(text) // COUNT:][:PASSAGE] for i in range(COUNT)]
    edits = json.loads((HERE / 'editing_tasks/tasks.json').read_text())['tasks']
    tokens = {'max_tokens': 128, 'ignore_eos': True}
    tasks = {
        'editing': [{'messages': [{'role': 'user', 'content': task['content']}], 'temperature': 0,
                     'max_tokens': 200} for task in edits],
        'copying': [{'prompt': f'{p}\n\nThe same text once more:\n\n{p[:80]}', 'temperature': 0, **tokens}
                    for p in passages],
        'prose': [{'prompt': p, 'temperature': 0.7, 'seed': 1, **tokens} for p in passages]}
    return {name: tasks[name] for name in names}


def post(url, body):
    path = '/v1/chat/completions' if 'messages' in body else '/v1/completions'
    request = urllib.request.Request(url + path, json.dumps({**body, 'timings': True}).encode(),
                                     {'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)


def text_of(answer):
    choice = answer['choices'][0]
    return choice['text'] if 'text' in choice else choice['message']['content']


def metrics(url):
    with urllib.request.urlopen(f'{url}/metrics', timeout=60) as response:
        lines = response.read().decode().splitlines()
    return {name: float(value) for name, value in
            (line.rsplit(' ', 1) for line in lines if line.startswith('tokamak_'))}


def draft_counts(url):
    """Returns how many rows had at least 1, 2, ... drafts until now, and how many drafts were accepted."""
    values = metrics(url)
    rows = [int(values.get(f'{METRIC}draft_tokens_per_pos_total{{position="{i}"}}', 0))
            for i in range(MOST_DRAFTS)]
    return rows, int(values[f'{METRIC}accepted_tokens_total'])


def measure_one(url, bodies):
    """Returns tokens per second without the prompts' time, and the answers by request."""
    answers = [post(url, body) for body in bodies]
    tokens = sum(answer['usage']['completion_tokens'] - 1 for answer in answers)  # the first comes with the prompt
    seconds = sum(answer['timings']['decode_ms'] for answer in answers) / 1e3
    return tokens / seconds, dict(enumerate(answers))


def measure_many(url, bodies, clients):
    """Returns tokens per second of all clients while each has a request, and the answers by request.

    Drafts make equal requests end at different times. If all came at once and none followed, the last
    ones would run alone, which steady load never does.
    """
    answers, stop = {}, threading.Event()

    def client(first):
        for i in itertools.count(first, clients):
            if stop.is_set():
                return
            answers[i] = post(url, {**bodies[i % len(bodies)], 'seed': i})

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        done = [pool.submit(client, first) for first in range(clients)]
        time.sleep(START)
        before, start = metrics(url)[TOKENS], time.monotonic()
        time.sleep(WINDOW)
        tokens, seconds = metrics(url)[TOKENS] - before, time.monotonic() - start
        stop.set()
        for future in done:
            future.result()
    return tokens / seconds, answers


def step_costs(args):
    """Seconds of a step with 0, 1, ... drafts, divided by those of a step with none."""
    rates = [[] for _ in range(MOST_DRAFTS + 1)]
    for _ in range(args.runs):
        for count, values in enumerate(rates):
            drafts = ['--synthetic-acceptance', '0', '--draft-tokens', str(count)] if count else []
            result = subprocess.run(
                [args.tokamak, 'bench', 'latency', args.model, '--device', 'cpu', '--batch', '1',
                 '--prompt-tokens', '250', '--output-tokens', '128', '--json', *drafts],
                capture_output=True, check=True, text=True)
            values.append(json.loads(result.stdout)['output_tok_s'])
    medians = [statistics.median(values) for values in rates]
    return [medians[0] / rate for rate in medians]


def print_steps(args, rows, answers, ratio):
    """`rows`: how many steps had at least 1, 2, ... drafts; `answers` are those of the same steps."""
    steps = sum(answer['timings']['steps'] - 1 for answer in answers)
    tokens = sum(answer['usage']['completion_tokens'] - 1 for answer in answers)
    with_count = [steps, *rows, 0]
    costs = step_costs(args)
    cost = sum((with_count[k] - with_count[k + 1]) * costs[k] for k in range(MOST_DRAFTS + 1)) / steps
    print(f'  {tokens / steps:.2f} tokens a step, which costs {cost:.2f}; {ratio:.2f} is '
          f'{ratio / (tokens / steps / cost):.0%} of the quotient; a step with 1, 2, ... drafts costs '
          f'{", ".join(f"{c:.2f}" for c in costs[1:])}', flush=True)


def serve(args, kind):
    """A new server, as two processes of one program may differ in speed by 2% for as long as they run."""
    return compare_chats.serving([args.tokamak, 'serve', args.model, '--device', 'cpu', '--speculate', kind])


def take_turn(args, kind, bodies, clients):
    """Returns tokens per second, the answers by request, and the draft counts of one server's turn."""
    with serve(args, kind) as url:
        for body in bodies:  # prompts into the prefix cache
            post(url, {**body, 'max_tokens': 1})
        rate, answers = measure_one(url, bodies) if clients == 1 else measure_many(url, bodies, clients)
        return rate, answers, *draft_counts(url)


def compare(args, task, bodies, clients):
    kinds = {'off': 'off', 'off again': 'off', 'default': 'auto'}
    rates = {name: [] for name in kinds}
    rows, taken, on, texts = [0] * MOST_DRAFTS, 0, [], {}
    for run in range(args.runs):
        names = list(kinds)
        for name in names[run % 3:] + names[:run % 3]:
            rate, answers, counts, accepted = take_turn(args, kinds[name], bodies, clients)
            rates[name].append(rate)
            for i, answer in answers.items():
                if texts.setdefault(i, text_of(answer)) != text_of(answer):
                    raise RuntimeError(f'{task}: speculation changed an answer')
            if kinds[name] == 'auto':
                on += answers.values()
                rows = [a + b for a, b in zip(rows, counts)]
                taken += accepted
    print(f'{task}, {clients} at once: tokens/s', *(
        f'{name} {statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f}),'
        for name, values in rates.items()))
    twice_off = list(zip(rates['off'], rates['off again']))
    ratios = [2 * rate / sum(off) for rate, off in zip(rates['default'], twice_off)]
    for name, values in (('off again ÷ off', [again / off for off, again in twice_off]),
                         ('default ÷ mean of both', ratios)):
        print(f'  {name}: {statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})')
    print(f'  {taken} of {sum(rows)} drafts accepted', flush=True)
    if clients == 1:
        print_steps(args, rows, on, statistics.median(ratios))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('tokamak')
    parser.add_argument('model')
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--tasks', default='editing,copying,prose')
    parser.add_argument('--clients', default='1,8,32')
    args = parser.parse_args()
    for task, bodies in make_tasks(args.tasks.split(',')).items():
        for clients in map(int, args.clients.split(',')):
            compare(args, task, bodies, clients)


if __name__ == '__main__':
    main()
