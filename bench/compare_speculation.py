#!/usr/bin/env python3
"""Speed with and without speculative decoding, over HTTP, and whether the answers are the same.

Usage: compare_speculation.py TOKAMAK MODEL.gguf [--runs N] [--tasks editing,copying,prose]
                              [--clients 1,8,32]

Two servers take turns, one with `--speculate off` and one with the default. The tasks:
  editing   the 20 of editing_tasks/tasks.json, which repeat parts of their prompts (greedy, up to 200 tokens)
  copying   passages of texts/prose.txt, to copy: a passage twice, the second time without its end (greedy)
  prose     these passages, to continue (temperature 0.7)
Prints tokens per second, medians with the least and the most: of one client without the prompts' time, of
several all together. Then, for one client, the tokens of a step and what a step costs in comparison with one
without drafts, as `bench latency --synthetic-acceptance 0` measures it for the same numbers of drafts.
"""
import argparse
import concurrent.futures
import contextlib
import json
import pathlib
import statistics
import subprocess
import time
import urllib.request

import compare_chats

HERE = pathlib.Path(__file__).parent
PASSAGE = 700  # characters
COUNT = 8  # passages
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


def draft_counts(url):
    """Returns how many rows had at least 1, 2, ... drafts until now, and how many drafts were accepted."""
    with urllib.request.urlopen(f'{url}/metrics', timeout=60) as response:
        lines = response.read().decode().splitlines()
    values = dict(line.rsplit(' ', 1) for line in lines if line.startswith(METRIC))
    rows = [int(values.get(f'{METRIC}draft_tokens_per_pos_total{{position="{i}"}}', 0))
            for i in range(MOST_DRAFTS)]
    return rows, int(values[f'{METRIC}accepted_tokens_total'])


def measure(url, bodies, clients):
    """Returns tokens per second, without prompts where there is one client, and the answers."""
    bodies = bodies * -(-clients // len(bodies))
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda body: post(url, body), bodies))
    seconds = time.monotonic() - start
    tokens = sum(answer['usage']['completion_tokens'] for answer in answers)
    if clients == 1:
        tokens -= len(answers)  # the first ones come with the prompts
        seconds = sum(answer['timings']['decode_ms'] for answer in answers) / 1e3
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


def compare(args, urls, task, bodies, clients):
    rates = {kind: [] for kind in urls}
    rows_before, taken_before = draft_counts(urls['auto'])
    on = []
    for _ in range(args.runs):
        texts = {}
        for kind, url in urls.items():
            rate, answers = measure(url, bodies, clients)
            rates[kind].append(rate)
            texts[kind] = [text_of(answer) for answer in answers]
        on += answers
        if texts['off'] != texts['auto']:
            raise RuntimeError(f'{task}: speculation changed an answer')
    rows, taken = draft_counts(urls['auto'])
    rows = [now - then for now, then in zip(rows, rows_before)]
    ratios = [fast / slow for fast, slow in zip(rates['auto'], rates['off'])]
    print(f'{task}, {clients} at once:', *(
        f'{kind} {statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})'
        for kind, values in rates.items()),
        f'ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}),'
        f' {taken - taken_before} of {sum(rows)} drafts accepted', flush=True)
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
    with contextlib.ExitStack() as stack:
        urls = {}
        for kind in ('off', 'auto'):
            port = compare_chats.free_port()
            urls[kind] = f'http://127.0.0.1:{port}'
            process = stack.enter_context(subprocess.Popen(
                [args.tokamak, 'serve', args.model, '--device', 'cpu', '--port', str(port),
                 '--speculate', kind], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            stack.callback(process.kill)
            compare_chats.wait_until_healthy(process, urls[kind])
        for task, bodies in make_tasks(args.tasks.split(',')).items():
            for clients in map(int, args.clients.split(',')):
                compare(args, urls, task, bodies, clients)


if __name__ == '__main__':
    main()
