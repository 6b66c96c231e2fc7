#!/usr/bin/env python3
"""Checks what operators see: /metrics against what clients saw, /debug/state, the access log."""

import concurrent.futures
import http.client
import json
import os
import random
import re
import resource
import socket
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import support
from support import Server

sys.path.insert(0, str(support.ROOT / 'tools'))
import check_packaging

DOCS = support.ROOT / 'docs' / 'operations.md'
DASHBOARD = support.ROOT / 'packaging' / 'grafana' / 'tokamak.json'


def parse_metrics(text):
    """Returns {name: (type, {labels: value})}. Strict about the format's grammar."""
    families, order = {}, []
    name = kind = None
    for line in text.splitlines():
        if line.startswith('# HELP '):
            name = line.split(' ', 3)[2]
            assert name not in families, f'{name} comes twice'
        elif line.startswith('# TYPE '):
            _, _, typed, kind = line.split(' ')
            assert typed == name, line
            families[name] = (kind, {})
            order.append(name)
        else:
            found = re.fullmatch(r'([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)', line)
            assert found, line
            sample, labels, value = found.groups()
            suffixes = ('_bucket', '_sum', '_count') if kind == 'histogram' else ('',)
            assert sample in [name + s for s in suffixes], f'{sample} in {name}'
            families[name][1][sample[len(name):] + '{' + (labels or '') + '}'] = float(value)
    return families


def scrape(server, headers=None):
    request = urllib.request.Request(server.url + '/metrics', headers=headers or {})
    with urllib.request.urlopen(request, timeout=support.PATIENCE) as response:
        assert response.headers['Content-Type'].startswith('text/plain; version=0.0.4')
        return parse_metrics(response.read().decode())


def value(metrics, name, labels=''):
    return metrics[name][1]['{' + labels + '}']


def histogram_count(metrics, name):
    samples = metrics[name][1]
    buckets = [v for k, v in samples.items() if k.startswith('_bucket')]
    assert buckets == sorted(buckets), f'{name} is not cumulative'
    assert buckets[-1] == samples['_count{}'], name
    return samples['_count{}']


def stream(server, body, leave_after=None):
    """Returns (events, whole): the JSON of a stream's events, read to its end or up to
    `leave_after` events."""
    connection = http.client.HTTPConnection('127.0.0.1', server.port, timeout=support.PATIENCE)
    body = dict(body, stream=True, stream_options={'include_usage': True})
    connection.request('POST', '/v1/completions', json.dumps(body),
                       {'Content-Type': 'application/json'})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    events = []
    for line in response:
        if line.startswith(b'data: [DONE]'):
            return events, True
        if line.startswith(b'data: '):
            events.append(json.loads(line[6:]))
            if leave_after is not None and len(events) >= leave_after:
                response.close()
                connection.close()
                return events, False
    raise AssertionError('a stream without an end')


class Metrics(unittest.TestCase):
    def test_totals_are_what_clients_saw(self):
        seed = int(os.environ.get('TOKAMAK_TEST_SEED', random.randrange(1 << 30)))
        print(f'TOKAMAK_TEST_SEED={seed}', file=sys.stderr)
        rng = random.Random(seed)
        shared = 'The history of the city begins long before the river was given a name. ' * 3
        # These two want 13 of the 16 blocks (16 tokens each), so one is preempted in any case.
        bodies = [{'prompt': f'{i}', 'max_tokens': 200, 'ignore_eos': True, 'seed': i,
                   'streamed': False} for i in range(2)]
        for i in range(46):
            prompt = (shared if rng.random() < 0.5 else '') + f'Request {rng.random()}: once'
            bodies.append({'prompt': prompt, 'max_tokens': rng.randint(1, 24), 'seed': i,
                           'n': rng.choice([1, 1, 3]), 'temperature': 0.9,
                           'streamed': rng.random() < 0.5})
        with Server('--num-blocks', '16', '--max-seqs', '6') as server:
            totals = dict(prompt=0, cached=0, output=0, gaps=0)
            reasons = dict(stop=0, length=0)

            def call(body):
                body = dict(body)
                if body.pop('streamed'):
                    events, whole = stream(server, body)
                    self.assertTrue(whole)
                    usage = events[-1]['usage']
                    ends = [c['finish_reason'] for e in events for c in e['choices']
                            if c['finish_reason']]
                    ids = None
                else:
                    status, answer = server.request('/v1/completions', dict(
                        body, return_token_ids=True))
                    self.assertEqual(status, 200, answer)
                    usage = answer['usage']
                    ends = [c['finish_reason'] for c in answer['choices']]
                    ids = [len(c['token_ids']) for c in answer['choices']]
                return usage, ends, ids

            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                results = list(pool.map(call, bodies))
            gaps_known = True
            for usage, ends, ids in results:
                totals['prompt'] += usage['prompt_tokens']
                totals['cached'] += usage['prompt_tokens_details']['cached_tokens']
                totals['output'] += usage['completion_tokens']
                reasons['length' if 'length' in ends else 'stop'] += 1
                if ids is not None:
                    totals['gaps'] += sum(max(0, n - 1) for n in ids)
                else:  # here every choice of a stream has a token unless it stops at once
                    totals['gaps'] += max(0, usage['completion_tokens'] - len(ends))
                    gaps_known &= usage['completion_tokens'] >= len(ends)
            for status in (server.request('/v1/completions', {'prompt': 7, 'n': 0})[0],
                           server.request('/nothing')[0]):
                self.assertIn(status, (400, 404))

            # An answer may arrive before the statistics of its last step.
            metrics, early = scrape(server), 0
            while value(metrics, 'tokamak_num_requests_running') > 0:
                metrics, early = scrape(server), early + 1
            self.assertEqual(value(metrics, 'tokamak_prompt_tokens_total'), totals['prompt'])
            self.assertEqual(value(metrics, 'tokamak_prefix_cache_queries_total'),
                             totals['prompt'])
            self.assertEqual(value(metrics, 'tokamak_prefix_cache_hits_total'), totals['cached'])
            self.assertGreater(totals['cached'], 0)
            self.assertEqual(value(metrics, 'tokamak_generation_tokens_total'), totals['output'])
            for reason, count in dict(reasons, cancelled=0, error=0).items():
                self.assertEqual(value(metrics, 'tokamak_requests_total',
                                       f'finished_reason="{reason}"'), count, reason)
            for name in ('time_to_first_token', 'request_queue_time', 'request_prefill_time',
                         'request_decode_time', 'e2e_request_latency'):
                self.assertEqual(histogram_count(metrics, f'tokamak_{name}_seconds'), 48, name)
            gaps = histogram_count(metrics, 'tokamak_inter_token_latency_seconds')
            if gaps_known:
                self.assertEqual(gaps, totals['gaps'])
            self.assertEqual(value(metrics, 'tokamak_http_responses_total', 'code="200"'),
                             48 + early)
            self.assertEqual(value(metrics, 'tokamak_http_responses_total', 'code="400"'), 1)
            self.assertEqual(value(metrics, 'tokamak_http_responses_total', 'code="404"'), 1)
            for name in ('num_requests_running', 'num_requests_waiting', 'preparing',
                         'kv_blocks_used', 'http_clients_gone_total'):
                self.assertEqual(value(metrics, f'tokamak_{name}'), 0, name)
            self.assertEqual(value(metrics, 'tokamak_kv_blocks_capacity'), 16)
            self.assertGreater(value(metrics, 'tokamak_num_preemptions_total'), 0)
            # One more request, which is cancelled because its client leaves.
            events, _ = stream(server, {'prompt': 'a', 'max_tokens': 240, 'ignore_eos': True},
                               leave_after=3)
            self.assertEqual(len(events), 3)
            server.wait_until(lambda h: h['running'] == 0, 'the cancelled one is gone')
            after = scrape(server)
            self.assertEqual(value(after, 'tokamak_requests_total',
                                   'finished_reason="cancelled"'), 1)
            self.assertEqual(value(after, 'tokamak_http_clients_gone_total'), 1)
            for name, (kind, samples) in metrics.items():
                if kind in ('counter', 'histogram'):
                    for labels, before in samples.items():
                        self.assertGreaterEqual(after[name][1][labels], before, name + labels)

    def test_names_are_those_of_the_documentation_and_the_dashboard(self):
        with Server() as server:
            server.request('/v1/completions', {'prompt': 'a', 'max_tokens': 2})
            metrics = scrape(server)
        documented = dict(re.findall(r'^\| `((?:tokamak|process)_\w+)` \| (\w+) \|',
                                     DOCS.read_text(), flags=re.M))
        self.assertEqual(documented.pop('tokamak_expert_imbalance'), 'gauge')  # no experts here
        # Of images (test_images.py has these), and of several ranks.
        for name in [name for name in documented if 'image' in name or '_rank_' in name]:
            documented.pop(name)
        self.assertEqual({name: kind for name, (kind, _) in metrics.items()}, documented)
        series = set(metrics) | {f'{name}_{s}' for name, (kind, _) in metrics.items()
                                 if kind == 'histogram' for s in ('bucket', 'sum', 'count')}
        named = check_packaging.dashboard_metrics(json.loads(DASHBOARD.read_text()))
        self.assertGreater(len(named), 20)
        self.assertEqual(named - series, set())


class DebugState(unittest.TestCase):
    def check(self, state):
        """Checks what holds for any state."""
        self.assertEqual(state['version'], 1)
        self.assertEqual(len(state['kv']['groups']), 1)
        group = state['kv']['groups'][0]
        counts = {k: sum(group['map'].count(c) for c in chars)
                  for k, chars in (('free', '.'), ('cached', 'c'), ('referenced', '123456789'))}
        self.assertEqual(counts, {k: group[k] for k in counts})
        self.assertEqual(sum(counts.values()), group['total'])
        paused = sum(s['state'] == 'paused' for s in state['sequences'])
        self.assertEqual(state['sequences_total'],
                         state['engine']['running'] + state['engine']['waiting'] + paused)
        running = [s for s in state['sequences'] if s['state'] == 'running']
        self.assertEqual(len(running), state['engine']['running'])
        for s in running:
            self.assertLessEqual(s['computed_tokens'], s['prompt_tokens'] + s['output_tokens'])
            self.assertLessEqual(s['computed_tokens'], s['blocks'] * state['kv']['block_tokens'])
            self.assertLessEqual(s['cached_tokens'], s['computed_tokens'])
        tree = state['prefix_tree']
        self.assertEqual(tree['nodes'][0], dict(id=0, parent=-1, blocks=0, readers=0, age_s=0))
        self.assertFalse(tree['truncated'])
        self.assertEqual(sum(n['blocks'] for n in tree['nodes']), tree['nodes_total'])
        seen = set()
        for node in tree['nodes']:
            self.assertIn(node['parent'], seen | {-1})
            seen.add(node['id'])
        for r in state['requests']:
            times = [r['arrived'], r['admitted'], r['first_token'], r['ended']]
            times = [t for t in times if t is not None]
            self.assertEqual(times, sorted(times), r)
            self.assertEqual(r['state'] == 'running', r['ended'] is None, r)

    def test_it_is_consistent_at_any_moment(self):
        with Server('--num-blocks', '100', '--max-seqs', '4') as server:
            stop = threading.Event()

            def load(worker):
                i = 0
                while not stop.is_set():
                    i += 1
                    server.request('/v1/completions', {
                        'prompt': 'Once upon a time there was a small engine. ' * (i % 5 + 1),
                        'max_tokens': 30, 'n': 1 + worker % 2, 'ignore_eos': True})

            workers = [threading.Thread(target=load, args=(i,)) for i in range(6)]
            for worker in workers:
                worker.start()
            states = []
            while len(states) < 40:
                status, state = server.request('/debug/state')
                self.assertEqual(status, 200)
                self.check(state)
                states.append(state)
            stop.set()
            for worker in workers:
                worker.join()
            times = [s['time'] for s in states]
            different = sorted(set(times))
            self.assertEqual(times, sorted(times))
            for a, b in zip(different, different[1:]):
                self.assertGreaterEqual(b - a, 0.0999)
            busiest = max(states, key=lambda s: s['engine']['rates']['output_tok_s'])
            for name in ('output_tok_s', 'steps_s', 'weight_gb_s', 'kv_gb_s'):
                self.assertGreater(busiest['engine']['rates'][name], 0, name)
            self.assertTrue(any(n['readers'] > 1 for s in states
                                for n in s['prefix_tree']['nodes']), 'nothing was shared')

            time.sleep(0.2)
            state = server.request('/debug/state')[1]
            self.check(state)
            metrics = scrape(server)
            group = state['kv']['groups'][0]
            self.assertEqual(group['referenced'], value(metrics, 'tokamak_kv_blocks_used'))
            self.assertEqual(group['cached'], value(metrics, 'tokamak_kv_blocks_cached'))
            self.assertEqual(group['total'], value(metrics, 'tokamak_kv_blocks_capacity'))
            self.assertEqual(state['engine']['generated_tokens'],
                             value(metrics, 'tokamak_generation_tokens_total'))
            # Measured only while the engine is idle.
            deadline = time.monotonic() + support.PATIENCE
            while state['engine']['rates']['ceiling_gb_s'] is None:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.2)
                state = server.request('/debug/state')[1]
            support.report('ceiling_gb_s', state['engine']['rates']['ceiling_gb_s'])

    def test_it_holds_no_text(self):
        with Server() as server:
            server.request('/v1/completions', {'prompt': 'xyzzy plugh', 'max_tokens': 8,
                                               'cache_salt': 'plover', 'stop': ['frotz']})
            text = json.dumps(server.request('/debug/state')[1])
            for word in ('xyzzy', 'plugh', 'plover', 'frotz'):
                self.assertNotIn(word, text)

    def test_a_server_that_was_watched_idles(self):
        with Server() as server:
            server.request('/debug/state')
            server.request('/v1/completions', {'prompt': 'a', 'max_tokens': 4})
            server.request('/debug/state')
            while server.request('/debug/state')[1]['engine']['rates']['ceiling_gb_s'] is None:
                time.sleep(0.2)  # the machine is being measured
            time.sleep(0.5)
            before = server.cpu_seconds()
            time.sleep(3)
            self.assertLess(server.cpu_seconds() - before, 0.1)


class OpenFiles(unittest.TestCase):
    def test_the_limit_is_raised_for_connections_and_fetches(self):
        usual = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, usual)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, usual[1]))
        limits = []
        for flags in ([], ['--allow-image-hosts', 'example.org']):
            with Server('--max-connections', '100', *flags) as server:
                server.health()  # the limit was raised after the line that says where it listens
                limits.append(resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[0])
        self.assertEqual(limits, [100 + 512, 100 + 512 + 256 + 2 * 64])


class AccessLog(unittest.TestCase):
    def test_lines_are_what_clients_got(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + '/access.log'
            with Server('--access-log', path) as server:
                answers = [server.request('/v1/completions', {
                    'prompt': f'secret words {i}', 'max_tokens': 5, 'n': 2})[1] for i in range(5)]
                self.assertEqual(server.request('/v1/completions', {'prompt': 7})[0], 400)
                events, _ = stream(server, {'prompt': 'a', 'max_tokens': 4000,
                                            'ignore_eos': True}, leave_after=3)
                server.wait_until(lambda h: h['running'] == 0, 'it is cancelled')
                self.assertEqual(server.terminate(), 0)
            with open(path) as file:
                text = file.read()
            self.assertNotIn('secret', text)
            lines = {}
            for line in map(json.loads, text.splitlines()):
                lines.setdefault(line.get('id', line['status']), line)
            for answer in answers:
                line = lines[answer['id']]
                self.assertEqual((line['status'], line['method'], line['path']),
                                 (200, 'POST', '/v1/completions'))
                self.assertEqual(line['prompt_tokens'], answer['usage']['prompt_tokens'])
                self.assertEqual(line['output_tokens'], answer['usage']['completion_tokens'])
                self.assertEqual(sorted(line['finish_reasons']),
                                 sorted(c['finish_reason'] for c in answer['choices']))
                phases = line['queue_ms'] + line['prefill_ms'] + line['decode_ms']
                self.assertLessEqual(phases, line['duration_ms'] + 0.01)
            self.assertEqual(lines[400]['path'], '/v1/completions')
            gone = lines[events[0]['id']]
            self.assertTrue(gone['client_gone'])
            self.assertGreaterEqual(gone['output_tokens'], 2)


if __name__ == '__main__':
    support.main()
