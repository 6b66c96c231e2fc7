"""The engines that compare_cpu.py runs. Each has settings and measures one shape with one of them.

Every measurement is a process of its own that loads, warms up and measures once.
"""
import json
import pathlib
import re
import subprocess

TIMEOUT_S = 600


def run(args, command, with_stderr=False):
    """Returns a command's output on the chosen cores; RuntimeError with its last line if it fails."""
    command = ['taskset', '-c', args.cpus] + [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ['no message'])[-1]
        raise RuntimeError(f'exit code {done.returncode}: {last}')
    return done.stdout + (done.stderr if with_stderr else '')


class Setting(dict):
    """The model file of a run, and flags with their values."""

    def __str__(self):
        flags = ('fa', 'kvu', 'rtr', 'repack')
        extra = ' '.join(f'{flag} {self[flag]}' for flag in flags if flag in self)
        return f'{self["type"]} {extra}'.strip()


def type_of(path):
    """Returns "Q4_1" for "SmolLM2-135M-Instruct.Q4_1.gguf"."""
    return pathlib.Path(path).stem.rpartition('.')[2]


class Tokamak:
    def __init__(self, args, threads, isa):
        self.args, self.threads, self.isa = args, threads, isa
        self.name = 'tokamak' if isa == 'auto' or args.avx2 else f'tokamak {isa}'

    def version(self):
        out = subprocess.run([self.args.tokamak, '--version'], capture_output=True, text=True,
                             check=True).stdout
        return out.strip().splitlines()[0]

    def settings(self, streams=1):
        return [Setting(type=type_of(self.args.model))]

    def serve_command(self):
        return [self.args.tokamak, 'serve', self.args.model, '--device', 'cpu', '--threads',
                self.threads, '--isa', self.isa]

    def measure(self, _, streams, prompt, output):
        # The first token comes with the prompt; the others are decode steps.
        out = run(self.args, [
            self.args.tokamak, 'bench', 'latency', self.args.model, '--device', 'cpu',
            '--threads', self.threads, '--isa', self.isa, '--batch', streams,
            '--prompt-tokens', max(1, prompt), '--output-tokens', output + 1, '--json'])
        result = json.loads(out.splitlines()[-1])
        return result['output_tok_s' if output else 'prompt_tok_s']


class LlamaCpp:
    name = 'llama.cpp'
    types = ('Q4_0', 'Q8_0', 'IQ4_NL')
    has_unified_cache = True
    has_repack = True  # repacks weights at load into blocks for its fastest kernels, unless told not to

    def __init__(self, args, threads, folder):
        self.args, self.threads, self.folder = args, threads, folder

    def version(self):
        return 'llama.cpp of llama-cpp-python 0.3.36'

    def models(self):
        """Returns {type: path}: the given file and those made from it."""
        stem = pathlib.Path(pathlib.Path(self.args.model).stem).stem  # without its type
        models = {type_of(self.args.model): self.args.model}
        models.update({t: self.args.peers / 'models' / f'{stem}.{t}.gguf' for t in self.types})
        return models

    def settings(self, streams=1):
        if self.args.same_file:
            only = Setting(type=type_of(self.args.model), model=self.args.model, fa=1)
            return [Setting(only, repack=r) for r in (1, 0)] if self.has_repack else [only]
        models = {'Q4_0': self.models()['Q4_0']} if self.args.quick else self.models()
        found = [Setting(type=t, model=path, fa=fa) for t, path in models.items() for fa in (1, 0)]
        # One cache for all streams, or one for each stream.
        if streams > 1 and self.has_unified_cache:
            found += [Setting(s, kvu=1) for s in found if s['fa']]
        return found

    def serve_command(self, model, chats):
        # With one cache for all slots, a slot can reuse what another one computed.
        return [self.folder / 'llama-server', '-m', model, '-t', self.threads, '-tb', self.threads,
                '-np', chats, '--kv-unified', '-c', 2048 * chats]

    def measure(self, setting, streams, prompt, output):
        if streams == 1:
            return self.measure_one(setting, prompt, output)
        out = run(self.args, [
            self.folder / 'llama-batched-bench', '-m', setting['model'], '-t', self.threads,
            '-tb', self.threads, '-c', streams * (prompt + output + 64), '-b', 2048, '-ub', 512,
            '-npp', prompt, '-ntg', output, '-npl', streams, '-fa', 'on' if setting['fa'] else 'off',
            *(['-kvu'] if setting.get('kvu') else []), *(['-rtr'] if setting.get('rtr') else []),
            *(['--no-repack'] if setting.get('repack') == 0 else [])],
            with_stderr=True)  # ik_llama.cpp prints its table there
        # | PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |
        rows = re.findall(r'^\|((?: *[\d.]+ \|){10})$', out, re.MULTILINE)
        if not rows:
            raise RuntimeError('llama-batched-bench printed no result')
        return float(rows[-1].split('|')[7])

    def after_prompt(self, prompt, output):
        return ['-p', 0, '-n', output, '-d', prompt]

    def measure_one(self, setting, prompt, output):
        if prompt and output:
            shape = self.after_prompt(prompt, output)
        else:
            shape = ['-p', prompt, '-n', output]
        out = run(self.args, [
            self.folder / 'llama-bench', '-m', setting['model'], '-t', self.threads, '-r', 1,
            '-fa', setting['fa'], '-o', 'json', *shape,
            *(['-rtr', 1] if setting.get('rtr') else []),
            *(['--repack', setting['repack']] if 'repack' in setting else [])])
        return float(json.loads(out)[-1]['avg_ts'])


class IkLlamaCpp(LlamaCpp):
    name = 'ik_llama.cpp'
    has_unified_cache = False  # there is no choice: it has only one kind of cache
    has_repack = False  # only at request: rtr

    def version(self):
        out = subprocess.run(['git', '-C', self.args.ik, 'rev-parse', '--short=9', 'HEAD'],
                             capture_output=True, text=True, check=False).stdout
        return f'ik_llama.cpp {out.strip() or "of an unknown commit"}'

    def settings(self, streams=1):
        both = []
        for setting in super().settings(streams):
            both += [Setting(setting, rtr=0), Setting(setting, rtr=1)]
        return both[:2] if self.args.quick else both

    def after_prompt(self, prompt, output):
        return ['-p', 0, '-n', 0, '-gp', f'{prompt},{output}']
