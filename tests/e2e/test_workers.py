#!/usr/bin/env python3
"""Worker processes that die, hang, lose their connection or run out of memory under a server.
$TOKAMAK_WORKER_KILLS: how many workers to kill."""

import concurrent.futures
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import resource
import shutil
import signal
import tempfile
import threading
import time
import unittest

import support
import tiny_model
from support import Server

try:
    import openai
except ImportError:
    openai = None

KILLS = int(os.environ.get('TOKAMAK_WORKER_KILLS', '4' if support.SLOW else '20'))
SOAK = KILLS >= 1000
RANKS = 2
PROMPT = 'Once upon a time there was'
ENDLESS = 2500  # tokens


def children(pid):
    """The processes that a process has started and that run, oldest first."""
    found = []
    for stat in pathlib.Path('/proc').glob('[0-9]*/stat'):
        try:
            fields = stat.read_text().rsplit(')', 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and fields[0] != 'Z':
            found.append((int(fields[19]), int(stat.parent.name)))
    return [pid for _, pid in sorted(found)]


def runs(pid):
    try:
        return pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
    except (FileNotFoundError, ProcessLookupError):
        return False


class Answer(threading.Thread):
    """A completion that is read to its end: its `text`, its HTTP `status`, and `error` (the message)
    and `code` if it has failed."""

    def __init__(self, server, max_tokens, prompt=PROMPT, stream=True):
        super().__init__(daemon=True)
        self.server, self.max_tokens, self.prompt, self.stream = server, max_tokens, prompt, stream
        self.text, self.error, self.code, self.begun = '', None, None, threading.Event()
        self.start()

    def run(self):
        connection = http.client.HTTPConnection('127.0.0.1', self.server.port,
                                                timeout=support.PATIENCE)
        connection.request('POST', '/v1/completions', json.dumps(
            {'prompt': self.prompt, 'max_tokens': self.max_tokens, 'temperature': 0,
             'ignore_eos': True, 'stream': self.stream}), {'Content-Type': 'application/json'})
        response = connection.getresponse()
        self.status, self.headers = response.status, response.headers
        if self.stream and self.status == 200:
            for line in response:
                line = line.strip()
                if line.startswith(b'data: ') and line != b'data: [DONE]':
                    self.take(json.loads(line[len(b'data: '):]))
        else:
            self.take(json.loads(response.read()))
        self.begun.set()
        self.ended = time.monotonic()

    def take(self, event):
        if 'error' in event:
            self.error, self.code = event['error']['message'], event['error']['code']
            assert event['error']['type'] == 'server_error', event
        else:
            self.text += event['choices'][0]['text']
        self.begun.set()

    def result(self):
        self.join(support.PATIENCE)
        assert not self.is_alive(), 'the request has not ended'
        return self.text, self.error


def answer_within_step(server, worker, stream=True):
    """Returns an answer that is under way and cannot go on, because the worker is stopped."""
    while True:
        answer = Answer(server, ENDLESS, stream=stream)
        if stream:
            assert answer.begun.wait(support.PATIENCE)
        else:
            server.wait_until(lambda health: health['running'] > 0 or not answer.is_alive(),
                              'it runs')
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.2)
        if answer.is_alive():
            return answer
        os.kill(worker, signal.SIGCONT)


class HealthWatch(threading.Thread):
    """Asks for /health all the time: `codes` by status, and `unhealthy` when it first was not 200.
    Use it in a with statement."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.ends = server, threading.Event()
        self.codes, self.unhealthy = {}, None

    def __enter__(self):
        self.start()
        return self

    def run(self):
        while not self.ends.wait(0.005):
            code, health = self.server.request('/health')
            self.codes[health['status']] = code
            if code != 200 and self.unhealthy is None:
                self.unhealthy = time.monotonic()

    def __exit__(self, *_):
        self.ends.set()
        self.join(support.PATIENCE)


class Workers(unittest.TestCase):
    """All tests share a server, because what one of them breaks must not harm the next."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        tiny_model.write(cls.folder, '{{ messages[0].content }}', idle_layers=3)
        cls.server = Server('--tp', str(RANKS), '--workers', 'processes', '--threads', str(RANKS),
                            '--worker-timeout-seconds', '1', '--speculate', 'off',
                            '--max-logprobs', '-1', model=cls.folder)
        cls.addClassCleanup(cls.server.__exit__)
        cls.expected, error = Answer(cls.server, 50).result()
        assert error is None, error
        cls.endless, error = Answer(cls.server, ENDLESS).result()
        assert error is None, error
        cls.times = []

    @classmethod
    def tearDownClass(cls):
        if not cls.times:
            return
        ends, starts, unhealthy = zip(*cls.times)
        support.report(f'{len(ends)} failures', f'requests ended within {max(ends):.2f} s of them, '
                       f'the group answered again {max(starts):.2f} s later at most, and /health '
                       f'was 503 within {max(unhealthy):.2f} s')
        if SOAK:  # with the machine for itself
            assert max(ends) < 5 and max(starts) < 10 and max(unhealthy) < 2

    def workers(self):
        found = children(self.server.process.pid)
        self.assertEqual(len(found), RANKS)
        return found

    def break_group(self, break_worker, expected_error):
        """Breaks a worker while a request runs. The request ends with the error, all workers are
        replaced, and the server answers as before."""
        before = self.workers()
        answer = Answer(self.server, ENDLESS)
        self.assertTrue(answer.begun.wait(support.PATIENCE))
        with HealthWatch(self.server) as health:
            broken = time.monotonic()
            break_worker(before)
            text, error = answer.result()
            if error is None:  # it was between two steps, so it was computed again
                self.assertEqual(text, self.endless)
            else:
                self.assertRegex(error, expected_error)
                self.assertEqual(answer.code, 'unavailable')
            self.assertEqual(Answer(self.server, 50).result(), (self.expected, None))
            again = time.monotonic()
        self.assertIn('restarting', health.codes)
        self.assertLessEqual(health.codes.items(), {'ok': 200, 'restarting': 503}.items())
        if error is not None:
            self.times.append((answer.ended - broken, again - answer.ended,
                               health.unhealthy - answer.ended))
        self.assertFalse(set(before) & set(self.workers()))
        for pid in before:
            self.assertFalse(runs(pid), f'worker {pid} still runs')
        self.assertEqual(self.server.request('/health')[0], 200)

    def test_kill(self):
        before = len(self.times)
        for i in range(KILLS):
            rank = i % RANKS
            self.break_group(lambda workers: os.kill(workers[rank], signal.SIGKILL),
                             rf'the worker process of rank {rank} \(pid \d+\) has ended: signal 9')
        self.assertGreater(len(self.times) - before, KILLS / 4)  # most requests are within a step

    def test_stop(self):
        self.break_group(lambda workers: os.kill(workers[1], signal.SIGSTOP),
                         r'rank [01] has not finished step \d+ within \d+\.\d s')

    def test_out_of_memory(self):
        def starve(workers):
            resource.prlimit(workers[0], resource.RLIMIT_AS, (1 << 20, 1 << 20))
            threading.Thread(target=self.server.request, args=('/v1/completions', {
                'prompt': 'x' * 3500, 'max_tokens': 1, 'prompt_logprobs': tiny_model.VOCAB}),
                daemon=True).start()
        self.break_group(starve, r'the worker process of rank 0 \(pid \d+\) has ended')

    def test_cut_connection(self):
        libc = ctypes.CDLL(None, use_errno=True)

        def cut(workers):
            """Shuts down the worker's socket from outside."""
            pidfd = libc.syscall(434, workers[1], 0)
            cut = 0
            for link in pathlib.Path(f'/proc/{workers[1]}/fd').iterdir():
                if not os.readlink(link).startswith('socket:'):
                    continue
                fd = libc.syscall(438, pidfd, int(link.name), 0)
                if fd < 0:
                    self.skipTest(f'pidfd_getfd: {os.strerror(ctypes.get_errno())}')
                if libc.shutdown(fd, 2) == 0:
                    cut += 1
                os.close(fd)
            os.close(pidfd)
            self.assertGreater(cut, 0)
        self.break_group(cut, r'the worker process of rank 1 \(pid \d+\) has (ended|closed its connection)')

    def test_death_while_idle(self):
        before = self.workers()
        os.kill(before[0], signal.SIGKILL)
        self.server.wait_until(
            lambda _: not runs(before[0]) and len(children(self.server.process.pid)) == RANKS
            and not set(before) & set(children(self.server.process.pid)),
            'the group has started again')
        self.assertEqual(Answer(self.server, 50).result(), (self.expected, None))

    def test_hang_while_loading(self):
        with Server('--tp', '2', '--workers', 'processes', '--threads', '2', '--speculate', 'off',
                    '--worker-load-timeout-seconds', '2', model=self.folder) as server:
            before = children(server.process.pid)
            os.kill(before[0], signal.SIGKILL)
            new = []
            while len(new) < 2:
                new = [pid for pid in children(server.process.pid) if pid not in before]
            os.kill(new[1], signal.SIGSTOP)
            server.wait_until(lambda health: health['status'] == 'restarting', 'it starts again')
            code, health = server.request('/health')
            self.assertEqual(code, 503)
            self.assertRegex(health['error'], r'rank 0 \(pid \d+\) has ended: signal 9')
            self.assertEqual(Answer(server, 50).result(), (self.expected, None))
            self.assertFalse(runs(new[1]))

    def test_other_replicas_go_on(self):
        with Server('--dp', '2', '--workers', 'processes', '--threads', '2',
                    '--worker-timeout-seconds', '600', model=self.folder) as server:
            worker = children(server.process.pid)[0]
            os.kill(worker, signal.SIGSTOP)
            # Each replica gets one. That of the stopped worker waits for its first step.
            both = [Answer(server, 100, prompt) for prompt in (PROMPT, 'Another story')]
            with HealthWatch(server) as health:
                server.wait_until(lambda _: not all(answer.is_alive() for answer in both),
                                  'the other replica has answered')
                os.kill(worker, signal.SIGKILL)
                both.sort(key=lambda answer: answer.result()[1] is not None)
                self.assertIsNone(both[0].error)
                self.assertRegex(both[1].error, 'has ended: signal 9')
                for prompt, expected in (both[0].prompt, both[0].text), (both[1].prompt, None):
                    text, error = Answer(server, 100, prompt).result()
                    self.assertIsNone(error)
                    self.assertEqual(text, expected or text)
            self.assertEqual(health.codes, {'ok': 200})

    def test_waiting_requests_survive(self):
        worker = self.workers()[0]
        first = answer_within_step(self.server, worker)
        others = [Answer(self.server, 50) for _ in range(4)]
        with contextlib.suppress(ProcessLookupError):  # the driver may have lost it already
            os.kill(worker, signal.SIGKILL)
        self.assertIsNotNone(first.result()[1])
        self.assertEqual((first.status, first.code), (200, 'unavailable'))
        for other in others:
            self.assertEqual(other.result(), (self.expected, None))

    def test_lost_requests_may_be_sent_again(self):
        worker = self.workers()[0]
        answer = answer_within_step(self.server, worker, stream=False)
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
        answer.join(support.PATIENCE)
        self.assertEqual((answer.status, answer.code), (503, 'unavailable'), answer.error)
        self.assertEqual(answer.headers['Retry-After'], '1')
        self.assertEqual(Answer(self.server, 50, stream=False).result(), (self.expected, None))

    @unittest.skipUnless(openai, 'the openai package is not there; run scripts/setup-test-refs')
    def test_the_openai_client_tries_again(self):
        client = self.server.client().with_options(max_retries=2).completions.with_raw_response
        retries = 0
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            while retries == 0:  # the worker was lost between two steps
                worker = self.workers()[0]
                answer = pool.submit(client.create, model=self.server.health()['model'],
                                     prompt=PROMPT, max_tokens=ENDLESS, temperature=0,
                                     extra_body={'ignore_eos': True})
                self.server.wait_until(lambda health: health['running'] > 0 or answer.done(),
                                       'it runs')
                os.kill(worker, signal.SIGSTOP)
                time.sleep(0.2)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
                response = answer.result(support.PATIENCE)
                self.assertEqual(response.parse().choices[0].text, self.endless)
                retries = response.retries_taken
                self.assertEqual(Answer(self.server, 50).result(), (self.expected, None))

    def test_the_drivers_death_leaves_no_worker(self):
        # They become children of this process, as in a container. Otherwise the kernel would continue
        # stopped ones, because their process group has lost its parent.
        PR_SET_CHILD_SUBREAPER = 36
        self.assertEqual(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0)
        for stopped in False, True:
            with Server('--tp', '2', '--workers', 'processes', '--threads', '2', '--speculate', 'off',
                        model=self.folder) as server:
                workers = children(server.process.pid)
                self.assertEqual(len(workers), 2)
                if stopped:
                    os.kill(workers[0], signal.SIGSTOP)
                server.process.kill()
                server.process.wait()
                deadline = time.monotonic() + support.PATIENCE
                while any(runs(pid) for pid in workers):
                    self.assertLess(time.monotonic(), deadline, 'a worker outlives its driver')
                    time.sleep(0.05)

    def test_signals_of_a_terminal_reach_only_the_driver(self):
        for pid in self.workers():
            os.kill(pid, signal.SIGINT)
            os.kill(pid, signal.SIGTERM)
        self.assertEqual(Answer(self.server, 50).result(), (self.expected, None))

    def test_a_group_that_cannot_start_again_ends_the_server(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        tiny_model.write(folder, '{{ messages[0].content }}')
        with Server('--tp', '2', '--workers', 'processes', '--threads', '2', '--speculate', 'off',
                    '--worker-timeout-seconds', '600', model=folder) as server:
            worker = children(server.process.pid)[0]
            answer = answer_within_step(server, worker)
            waiting = Answer(server, 5)
            tiny_model.write(folder, '{{ messages[0].content }}', seed=2)  # other weights
            time.sleep(1)  # until the second request has come
            os.kill(worker, signal.SIGKILL)
            other_weights = r'the worker of rank \d has other weights of \S+ than this driver'
            self.assertRegex(answer.result()[1], 'has ended: signal 9')
            self.assertRegex(waiting.result()[1], other_weights)
            self.assertEqual((waiting.status, waiting.code), (500, 'internal_error'))
            self.assertEqual(server.process.wait(support.PATIENCE), 1)
            server.wait_for_log()
            self.assertRegex(''.join(server.log), other_weights)


if __name__ == '__main__':
    support.main(needs_model=False)
