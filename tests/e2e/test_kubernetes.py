#!/usr/bin/env python3
"""The files of packaging/kubernetes: against the schema of Kubernetes, and against our own rules and
the program's flags. No cluster runs them."""

import copy
import re
import sys
import tempfile
import unittest

import support

try:
    import kubernetes_validate
    import yaml
except ImportError:
    print('skipped: scripts/setup-test-refs installs kubernetes-validate')
    sys.exit(support.SKIPPED)

FOLDER = support.ROOT / 'packaging' / 'kubernetes'
VERSION = '1.37'
# What serve takes at most after --drain-seconds, see docs/operations.md.
ENDING_SECONDS = 20


def documents():
    """All documents of all files, by (file, kind, name)."""
    found = {}
    for path in sorted(FOLDER.glob('*.yaml')):
        for document in yaml.safe_load_all(path.read_text()):
            found[path.name, document['kind'], document['metadata']['name']] = document
    return found


def schema_problem(document):
    try:
        kubernetes_validate.validate(document, VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f'{"/".join(map(str, error.path))}: {error.message}'
    return None


def option(args, name, default=None):
    for arg in args:
        if arg.startswith(f'{name}='):
            return arg[len(name) + 1:]
    return default


def pod_problems(spec):
    """What is wrong with a pod besides what the schema says."""
    problems = []
    if not spec.get('securityContext', {}).get('runAsNonRoot'):
        problems.append('runs as root')
    if spec.get('automountServiceAccountToken') is not False:
        problems.append('has a token of the cluster')
    volumes = {volume['name'] for volume in spec.get('volumes', [])}
    for container in spec['containers']:
        security = container.get('securityContext', {})
        if not security.get('readOnlyRootFilesystem'):
            problems.append('can write to its image')
        if security.get('allowPrivilegeEscalation') is not False:
            problems.append('can gain privileges')
        if security.get('capabilities', {}).get('drop') != ['ALL']:
            problems.append('has capabilities')
        if not re.search(r':[\w.-]+$', container['image']) or container['image'].endswith(':latest'):
            problems.append('has an image without a version')
        resources = container.get('resources', {})
        if 'memory' not in resources.get('limits', {}) or 'cpu' not in resources.get('requests', {}):
            problems.append('has no bounds')
        ports = {port['name']: port['containerPort'] for port in container.get('ports', [])}
        if str(ports.get('http')) != option(container['args'], '--port'):
            problems.append('declares a port that it does not listen on')
        for probe in ('startupProbe', 'readinessProbe', 'livenessProbe'):
            if container.get(probe, {}).get('httpGet') != {'path': '/health', 'port': 'http'}:
                problems.append(f'has no {probe} of /health')
        mounts = {mount['name'] for mount in container.get('volumeMounts', [])}
        if mounts != volumes:
            problems.append('mounts other volumes than it has')
        before = container.get('lifecycle', {}).get('preStop', {}).get('sleep', {}).get('seconds', 0)
        drain = int(option(container['args'], '--drain-seconds', 30))
        if spec.get('terminationGracePeriodSeconds', 30) < before + drain + ENDING_SECONDS:
            problems.append('is killed while it drains')
    return problems


class Kubernetes(unittest.TestCase):
    def test_files_fit_the_schema(self):
        self.assertGreaterEqual(len(documents()), 5)
        for name, document in documents().items():
            self.assertIsNone(schema_problem(document), name)

    def test_the_schema_is_strict(self):
        document = documents()['server.yaml', 'StatefulSet', 'tokamak']
        document['spec']['template']['spec']['containers'][0]['readinesProbe'] = {}
        self.assertIsNotNone(schema_problem(document))

    def test_pods_follow_the_rules(self):
        pods = {name: document['spec']['template']['spec']
                for name, document in documents().items() if 'template' in document['spec']}
        self.assertEqual(len(pods), 2)
        for name, pod in pods.items():
            self.assertEqual(pod_problems(pod), [], name)

    def test_each_rule_is_checked(self):
        good = documents()['server.yaml', 'StatefulSet', 'tokamak']['spec']['template']['spec']
        container = ('containers', 0)
        faults = [
            (('securityContext', 'runAsNonRoot'), False, 'runs as root'),
            (('automountServiceAccountToken',), True, 'has a token of the cluster'),
            ((*container, 'securityContext', 'readOnlyRootFilesystem'), False,
             'can write to its image'),
            ((*container, 'securityContext', 'allowPrivilegeEscalation'), True,
             'can gain privileges'),
            ((*container, 'securityContext', 'capabilities'), {}, 'has capabilities'),
            ((*container, 'image'), 'tokamak:latest', 'has an image without a version'),
            ((*container, 'resources'), {}, 'has no bounds'),
            ((*container, 'ports', 0, 'containerPort'), 80,
             'declares a port that it does not listen on'),
            ((*container, 'livenessProbe'), {}, 'has no livenessProbe of /health'),
            ((*container, 'volumeMounts'), [], 'mounts other volumes than it has'),
            (('terminationGracePeriodSeconds',), 54, 'is killed while it drains'),
        ]
        for path, value, problem in faults:
            pod = copy.deepcopy(good)
            at = pod
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value
            self.assertEqual(pod_problems(pod), [problem])

    def test_services_lead_to_pods(self):
        pods = [document['spec']['template']['metadata']['labels']
                for document in documents().values() if 'template' in document['spec']]
        services = [document for document in documents().values() if document['kind'] == 'Service']
        self.assertEqual(len(services), 3)
        for service in services:
            self.assertIn(service['spec']['selector'], pods)
            self.assertEqual(service['spec']['ports'][0]['targetPort'], 'http')

    def test_the_server_knows_its_flags(self):
        pod = documents()['server.yaml', 'StatefulSet', 'tokamak']['spec']['template']['spec']
        command, model, *flags = pod['containers'][0]['args']
        self.assertEqual((command, model), ('serve', '/models/model.gguf'))
        # The model does not exist here, and nothing else may be wrong.
        keys = option(flags, '--api-key-file')
        with tempfile.NamedTemporaryFile('w') as file:
            print('some-key', file=file, flush=True)
            result = support.tokamak(command, model, *(f.replace(keys, file.name) for f in flags),
                                     check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn('/models/model.gguf', result.stderr)

    def test_the_router_is_that_of_the_docs(self):
        pod = documents()['router.yaml', 'Deployment', 'tokamak-router']['spec']['template']['spec']
        args = pod['containers'][0]['args']
        text = (support.ROOT / 'docs' / 'operations.md').read_text()
        command = re.search(r'^smg launch (.*?[^\\])\n', text, re.M | re.S).group(1)
        words = command.replace('\\\n', ' ').split()
        documented = words[words.index('--policy'):]
        self.assertEqual([f'{a}={b}' for a, b in zip(documented[::2], documented[1::2])], args[-3:])
        server = documents()['server.yaml', 'StatefulSet', 'tokamak']
        for index in (0, 1):
            self.assertIn(f'http://tokamak-{index}.{server["spec"]["serviceName"]}:8080', args)
        self.assertIn(('server.yaml', 'Service', server['spec']['serviceName']), documents())
        requirements = (support.ROOT / 'tests' / 'requirements.txt').read_text()
        version = re.search(r'^smg==(.*)$', requirements, re.M).group(1)
        self.assertEqual(pod['containers'][0]['image'], f'smg:{version}')
        self.assertIn(f'smg=={version}', (FOLDER / 'router.yaml').read_text())


if __name__ == '__main__':
    support.main(needs_model=False)
