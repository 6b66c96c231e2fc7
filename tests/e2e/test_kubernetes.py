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
    import jsonschema
    import kubernetes_validate
    import yaml
except ImportError:
    print('skipped: scripts/setup-test-refs installs kubernetes-validate')
    sys.exit(support.SKIPPED)

FOLDER = support.ROOT / 'packaging' / 'kubernetes'
VERSION = '1.37'
GROUP = ('leader-worker-set.yaml', 'LeaderWorkerSet', 'tokamak-group')
# What serve takes at most after --drain-seconds, see docs/operations.md.
ENDING_SECONDS = 20


# The fields of LeaderWorkerSet that we use (leaderworkerset.x-k8s.io/v1, release 0.8, its page "API
# reference"); its pod templates are Kubernetes'.
GROUP_SCHEMA = {
    'type': 'object', 'additionalProperties': False, 'required': ['leaderWorkerTemplate'],
    'properties': {
        'replicas': {'type': 'integer', 'minimum': 0},
        'startupPolicy': {'enum': ['LeaderCreated', 'LeaderReady']},
        'networkConfig': {
            'type': 'object', 'additionalProperties': False, 'required': ['subdomainPolicy'],
            'properties': {'subdomainPolicy': {'enum': ['Shared', 'UniquePerReplica']}}},
        'leaderWorkerTemplate': {
            'type': 'object', 'additionalProperties': False, 'required': ['workerTemplate'],
            'properties': {
                'size': {'type': 'integer', 'minimum': 1},
                'restartPolicy': {'enum': ['RecreateGroupOnPodRestart', 'RecreateGroupAfterStart',
                                           'None']},
                'leaderTemplate': {'type': 'object'},
                'workerTemplate': {'type': 'object'}}}}}


def documents():
    """All documents of all files, by (file, kind, name)."""
    found = {}
    for path in sorted(FOLDER.glob('*.yaml')):
        for document in yaml.safe_load_all(path.read_text()):
            found[path.name, document['kind'], document['metadata']['name']] = document
    return found


def templates(document):
    """The pod templates of a document."""
    spec = document['spec']
    if document['kind'] == 'LeaderWorkerSet':
        group = spec['leaderWorkerTemplate']
        return [group['leaderTemplate'], group['workerTemplate']]
    return [spec['template']] if 'template' in spec else []


def schema_problem(document):
    try:
        if document['kind'] == 'LeaderWorkerSet':
            jsonschema.validate(document['spec'], GROUP_SCHEMA)
            parts = [{'apiVersion': 'v1', 'kind': 'PodTemplate', 'metadata': {'name': 'template'},
                      'template': template} for template in templates(document)]
        else:
            parts = [document]
        for part in parts:
            kubernetes_validate.validate(part, VERSION, strict=True)
    except (kubernetes_validate.ValidationError, jsonschema.ValidationError) as error:
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
        worker = container['args'][0] == 'worker'  # it listens nowhere, and ends when it fails
        ports = {port['name']: port['containerPort'] for port in container.get('ports', [])}
        address = option(container['args'], '--worker-address', '')
        listens = [option(container['args'], '--port'), address.rpartition(':')[2] or None]
        if [ports.get('http'), ports.get('workers')] != [port and int(port) for port in listens]:
            problems.append('declares a port that it does not listen on')
        for probe in ('startupProbe', 'readinessProbe', 'livenessProbe') if not worker else ():
            if container.get(probe, {}).get('httpGet') != {'path': '/health', 'port': 'http'}:
                problems.append(f'has no {probe} of /health')
        if worker and '--ignore-signals' not in container['args']:
            problems.append('leaves a driver that drains')
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
        self.assertGreaterEqual(len(documents()), 7)
        for name, document in documents().items():
            self.assertIsNone(schema_problem(document), name)

    def test_the_schema_is_strict(self):
        document = documents()['server.yaml', 'StatefulSet', 'tokamak']
        document['spec']['template']['spec']['containers'][0]['readinesProbe'] = {}
        self.assertIsNotNone(schema_problem(document))
        for path, value in (
                (('leaderWorkerTemplate', 'workerTemplate', 'spec', 'volume'), []),
                (('leaderWorkerTemplate', 'leaderTemplate', 'spec', 'containers', 0, 'arg'), []),
                (('leaderWorkerTemplate', 'restartPolicy'), 'Never'),
                (('leaderWorkerTemplate', 'size'), '2'),
                (('template',), {})):
            group = copy.deepcopy(documents()[GROUP])
            at = group['spec']
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value
            self.assertIsNotNone(schema_problem(group), path)

    def test_pods_follow_the_rules(self):
        pods = [(name, template['spec']) for name, document in documents().items()
                for template in templates(document)]
        self.assertEqual(len(pods), 4)
        for name, pod in pods:
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
        worker = templates(documents()[GROUP])[1]['spec']
        args = worker['containers'][0]['args']
        self.assertEqual(args[-1], '--ignore-signals')
        faults = [(good, *fault) for fault in faults] + [
            (worker, (*container, 'args'), args[:-1], 'leaves a driver that drains'),
            (worker, (*container, 'ports'), [{'name': 'http', 'containerPort': 80}],
             'declares a port that it does not listen on'),
        ]
        for unspoiled, path, value, problem in faults:
            pod = copy.deepcopy(unspoiled)
            at = pod
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value
            self.assertEqual(pod_problems(pod), [problem])

    def test_services_lead_to_pods(self):
        pods = [template['metadata']['labels'] for document in documents().values()
                for template in templates(document)]
        services = [document for document in documents().values() if document['kind'] == 'Service']
        self.assertEqual(len(services), 4)
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

    def test_driver_and_worker_fit_each_other(self):
        group = documents()[GROUP]
        driver, worker = ([c['args'] for c in t['spec']['containers']][0] for t in templates(group))
        address = option(driver, '--worker-address')
        self.assertEqual(option(worker, '--driver'), address)
        self.assertEqual(driver[1], worker[1])
        # One rank, because the pods of a group share no memory.
        self.assertEqual(option(worker, '--rank'), '0')
        self.assertEqual(group['spec']['leaderWorkerTemplate']['size'], 2)
        self.assertFalse([flag for flag in driver if flag.startswith(('--tp', '--pp', '--dp'))])
        # Programs that know all flags miss the first file that they read.
        with tempfile.NamedTemporaryFile('w') as file:
            print('some-key', file=file, flush=True)
            here = {'$(LWS_LEADER_ADDRESS)': 'localhost', option(driver, '--api-key-file'): file.name}
            for args in (driver, worker):
                for old, new in here.items():
                    args = [arg.replace(old, new) for arg in args]
                result = support.tokamak(*args, check=False)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertRegex(result.stderr, '/models/model.gguf|/run/secrets/tokamak-tls')

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
