#!/usr/bin/env python3
"""Checks packaging/: the systemd unit, the Dockerfile and the Grafana dashboard.

If systemd-analyze is installed, the unit must give no warning and an exposure of at most
MAX_EXPOSURE. A stage of .ci/run builds the image. Prints all problems and exits with 1 if there are
any.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_EXPOSURE = 2.0  # out of 10, from `systemd-analyze security`
INSTRUCTIONS = {'FROM', 'RUN', 'CMD', 'LABEL', 'EXPOSE', 'ENV', 'COPY', 'ENTRYPOINT', 'USER',
                'WORKDIR', 'ARG', 'STOPSIGNAL', 'HEALTHCHECK', 'SHELL', 'VOLUME'}


def unit_problems(text):
    """Returns systemd-analyze's complaints about a unit file; none if it is not installed."""
    if not shutil.which('systemd-analyze'):
        print('packaging: systemd-analyze is not here, the unit was not checked')
        return []
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / 'tokamak.service'
        # The program and its settings are not installed on this machine.
        text = text.replace('/usr/local/bin/tokamak', '/bin/true')
        unit.write_text(re.sub(r'^(EnvironmentFile=)(?=/)', r'\1-', text, flags=re.M))
        verify = subprocess.run(['systemd-analyze', 'verify', '--man=no', str(unit)],
                                capture_output=True, text=True)
        # Ignore problems of the machine's own units.
        problems = [line for line in verify.stderr.splitlines() if 'tokamak' in line]
        security = subprocess.run(
            ['systemd-analyze', 'security', '--offline=true', '--no-pager',
             f'--threshold={round(MAX_EXPOSURE * 10)}', str(unit)], capture_output=True, text=True)
        level = re.search(r'Overall exposure level.*?([0-9.]+)', security.stdout)
        if level is None:
            problems.append(f'systemd-analyze security: {security.stderr.strip()}')
        elif security.returncode != 0:
            problems.append(f'an exposure of {level.group(1)} is above {MAX_EXPOSURE}')
    return problems


def docker_problems(text, root):
    """Returns the problems of a Dockerfile whose context is the folder `root`."""
    problems = []
    lines = re.sub(r'\\\n', ' ', re.sub(r'^#.*\n', '', text, flags=re.M)).splitlines()
    steps = [line.split(None, 1) for line in lines if line.strip()]
    stages = set()
    user = 'root'
    for step in steps:
        name, rest = step[0], step[1] if len(step) > 1 else ''
        if name not in INSTRUCTIONS:
            problems.append(f'{name} is no instruction that we use')
        if name == 'FROM':
            image, *named = rest.split()
            if image not in stages and not re.search(r':(?!latest)[\w.-]+$', image):
                problems.append(f'FROM {image}: name a version')
            stages.update(named[1:])
            user = 'root'
        if name == 'USER':
            user = rest.strip()
        if name == 'COPY':
            words = rest.split()
            if words[0].startswith('--from='):
                if words[0][len('--from='):] not in stages:
                    problems.append(f'COPY {words[0]}: there is no such stage')
            else:
                problems += [f'COPY {word}: there is no such file' for word in words[:-1]
                             if not (root / word).exists()]
        if name == 'RUN' and 'apt-get install' in rest:
            for wanted in ('--no-install-recommends', 'rm -rf /var/lib/apt/lists'):
                if wanted not in rest:
                    problems.append(f'RUN apt-get install without {wanted}')
        if name in ('CMD', 'ENTRYPOINT'):
            try:
                json.loads(rest)
            except ValueError:
                problems.append(f'{name} is not a JSON list: a shell would not pass signals on')
    names = [step[0] for step in steps]
    problems += [f'{name} is missing' for name in ('FROM', 'ENTRYPOINT', 'HEALTHCHECK', 'STOPSIGNAL')
                 if name not in names]
    if user in ('root', '0'):
        problems.append('the program runs as root')
    return problems


def dashboard_metrics(dashboard):
    """The names of the metrics in a dashboard's queries."""
    text = ' '.join(target['expr'] for panel in dashboard['panels'] for target in panel['targets'])
    return set(re.findall(r'\b(?:tokamak|process)_\w+', text))


def documented_metrics(text):
    """The metrics in the tables of docs/operations.md, including the series of histograms."""
    names = set(re.findall(r'^\| `((?:tokamak|process)_\w+)', text, flags=re.M))
    return names | {f'{name}_{series}' for name in names for series in ('bucket', 'sum', 'count')}


def dashboard_problems(text, documentation):
    try:
        dashboard = json.loads(text)
    except ValueError as error:
        return [str(error)]
    unknown = dashboard_metrics(dashboard) - documented_metrics(documentation)
    problems = [f'{name} is not in docs/operations.md' for name in sorted(unknown)]
    ids = [panel['id'] for panel in dashboard['panels']]
    if len(set(ids)) != len(ids):
        problems.append('two panels have the same id')
    return problems


def main():
    packaging = ROOT / 'packaging'
    documentation = (ROOT / 'docs' / 'operations.md').read_text()
    found = {
        'systemd/tokamak.service': unit_problems(
            (packaging / 'systemd' / 'tokamak.service').read_text()),
        'docker/Dockerfile': docker_problems(
            (packaging / 'docker' / 'Dockerfile').read_text(), ROOT),
        'grafana/tokamak.json': dashboard_problems(
            (packaging / 'grafana' / 'tokamak.json').read_text(), documentation),
    }
    for file, problems in found.items():
        for problem in problems:
            print(f'packaging/{file}: {problem}')
    if any(found.values()):
        sys.exit(1)
    print('packaging: clean')


if __name__ == '__main__':
    main()
