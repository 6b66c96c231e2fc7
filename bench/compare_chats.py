"""Chats that share a prefix, over HTTP. The same client, `tokamak bench serve`, drives each server.

Each measurement starts a new server: in the first round its cache is cold, in the second round the
prefix is cached, and other words follow it.
"""
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

START_S = 60
ROUND_S = 600
# Lengths of prompts in words, of outputs in tokens. With what the chat template adds, the chats share
# about 880 tokens.
SHAPE = {'chats': 16, 'shared': 856, 'own': '10:20', 'output': 64}
QUICK = {'chats': 2, 'shared': 40, 'own': '5', 'output': 8}


def say(text):
    print(text, file=sys.stderr, flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def wait_until_healthy(process, url):
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f'the server ended with exit code {process.returncode}')
        try:
            with urllib.request.urlopen(url + '/health', timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise RuntimeError(f'the server was not ready after {START_S} s')


@contextlib.contextmanager
def serving(command):
    """Runs a server on a free port, which is added to its command, and gives its address."""
    port = free_port()
    process = subprocess.Popen([str(word) for word in command] + ['--port', str(port)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f'http://127.0.0.1:{port}'
        wait_until_healthy(process, url)
        yield url
    finally:
        process.kill()
        process.wait()


def one_round(args, url, shape, seed):
    command = [args.tokamak, 'bench', 'serve', '--url', url, '--requests', shape['chats'],
               '--concurrency', shape['chats'], '--shared-prefix', shape['shared'],
               '--input', shape['own'], '--output', shape['output'], '--seed', seed, '--json']
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=ROUND_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f'bench serve: {done.stderr.strip().splitlines()[-1]}')
    return json.loads(done.stdout)


def rounds(args, command, shape):
    """Returns the results of a cold and a warm round with a new server."""
    port = free_port()
    url = f'http://127.0.0.1:{port}'
    command = ['taskset', '-c', args.cpus] + [str(word) for word in command] + ['--port', str(port)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        try:
            wait_until_healthy(process, url)
            return [one_round(args, url, shape, seed) for seed in (0, 1)]
        finally:
            process.kill()


def servers(args, ours, llama):
    """Returns [(engine, setting, command)]: ours, and llama-server with its best weight types."""
    shape = QUICK if args.quick else SHAPE
    found = [(ours, ours.settings()[0], ours.serve_command())]
    models = llama.models()
    for kind in ('Q4_0',) if args.quick else ('Q4_0', 'IQ4_NL'):
        found.append((llama, kind, llama.serve_command(models[kind], shape['chats'])))
    return found


def compare(args, ours, llama, log):
    """Returns [(title, {engine: (setting, values)})]: tok/s, cold and warm."""
    shape = QUICK if args.quick else SHAPE
    values = {}
    for run in range(1, args.runs + 1):
        for engine, setting, command in servers(args, ours, llama):
            say(f'chats: run {run} of {args.runs}: {engine.name} {setting}')
            try:
                results = rounds(args, command, shape)
            except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
                say(f'  {error}')
                continue
            for kind, result in zip(('cold', 'warm'), results):
                say(f'  {kind}: {result["output_tok_s"]:.1f} tok/s, '
                    f'first token {result["ttft_ms"]["p50"]:.0f} ms')
                log.write(row=f'chats {kind}', engine=engine.name, setting=str(setting), run=run,
                          **result)
                values.setdefault((kind, engine.name, str(setting)), []).append(result)
    return [summary(kind, shape, values) for kind in ('cold', 'warm')]


def summary(kind, shape, values):
    best = {}
    for (of, name, setting), results in values.items():
        if of != kind:
            continue
        rates = [r['output_tok_s'] for r in results]
        ttft = statistics.median(r['ttft_ms']['p50'] for r in results)
        if name not in best or statistics.median(rates) > statistics.median(best[name][1]):
            best[name] = (f'{setting}, first token {ttft / 1e3:.1f} s', rates)
    cached = {'cold': 'nothing cached', 'warm': 'prefix cached'}[kind]
    return (f'{shape["chats"]} chats over HTTP, {shape["shared"]} words shared, '
            f'{shape["output"]} tokens each, {cached}', best)
