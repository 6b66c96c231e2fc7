#!/usr/bin/env python3
"""Runs the built examples as their users do: run_examples.py FOLDER MODEL.gguf"""
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request

PATIENCE = 300  # seconds; a hang, not a slow run


def run(*command, stdin=''):
    done = subprocess.run([str(word) for word in command], input=stdin, capture_output=True,
                          text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, f'{command}: exit code {done.returncode}\n{done.stderr}'
    return done


def offline_batch(folder, model):
    with tempfile.NamedTemporaryFile('w', suffix='.txt') as prompts:
        prompts.write('The capital of France is\n\nOne, two, three,\n')
        prompts.flush()
        done = run(folder / 'offline_batch', model, prompts.name, '6')
    assert 'The capital of France is Paris' in done.stdout, done.stdout
    assert re.search(r'2 prompts, \d+ tokens in, 12 tokens out', done.stderr), done.stderr
    refused = subprocess.run([str(folder / 'offline_batch'), '/nowhere.gguf', __file__],
                             capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert refused.returncode == 1 and '/nowhere.gguf' in refused.stderr, refused.stderr


def chat(folder, model):
    done = run(folder / 'chat', model, stdin='Say hello.\nAnd again, please.\n')
    answers = done.stdout.split('> ')
    assert len(answers) == 4 and all(text.strip() for text in answers[1:3]), done.stdout


def embedded_server(folder, model):
    with subprocess.Popen([str(folder / 'embedded_server'), str(model), '0'], text=True,
                          stdout=subprocess.PIPE) as server:
        try:
            url = re.search(r'http://\S+', server.stdout.readline()).group()
            assert 'Paris' in server.stdout.readline()
            body = {'prompt': 'The capital of France is', 'max_tokens': 3, 'temperature': 0}
            request = urllib.request.Request(url + '/v1/completions', json.dumps(body).encode(),
                                             {'Content-Type': 'application/json'})
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                assert 'Paris' in json.load(answer)['choices'][0]['text']
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=PATIENCE) == 0
        finally:
            server.kill()


def main():
    folder, model = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    if not model.exists():
        print(f'{model} is not there: the examples were built and not run')
        return
    for example in (offline_batch, chat, embedded_server):
        example(folder, model)
        print(f'{example.__name__}: works')


if __name__ == '__main__':
    main()
