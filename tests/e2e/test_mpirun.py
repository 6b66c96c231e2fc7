#!/usr/bin/env python3
"""Workers that mpirun or srun start, which join a server that waits for them."""

import os
import shutil
import subprocess
import tempfile
import threading
import unittest

import support
import tiny_model
from support import Server

PROMPT = 'Once upon a time there was'
# As root, and on any number of cores. Nothing reaches the network.
MPIRUN = ['mpirun', '-n', '2', '--bind-to', 'none', '--oversubscribe', '--mca', 'plm', 'isolated']
ROOT_ENV = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
# Nobody starts these workers.
BARE_ENV = {name: value for name, value in os.environ.items()
            if not name.startswith(('OMPI_', 'PMI_', 'PMIX_', 'SLURM_'))}


def complete(server, max_tokens=40):
    status, answer = server.request('/v1/completions', {
        'prompt': PROMPT, 'max_tokens': max_tokens, 'temperature': 0, 'ignore_eos': True})
    return answer['choices'][0]['text'] if status == 200 else (status, answer)


class Mpirun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        tiny_model.write(cls.folder, '{{ messages[0].content }}')
        with Server('--tp', '2', '--threads', '2', model=cls.folder) as server:
            cls.expected = complete(server)

    def setUp(self):
        self.address = f'unix:{self.folder}/{self.id()}/socket'

    def server(self):
        return Server('--tp', '2', '--threads', '2', '--workers', 'processes', '--worker-address',
                      self.address, model=self.folder)

    def start(self, command, env=None):
        process = subprocess.Popen(
            [*command, support.BINARY, 'worker', self.folder, '--driver', self.address],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=BARE_ENV | (env or {}))

        def end():
            process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def mpirun(self):
        if not shutil.which('mpirun'):
            self.skipTest('mpirun is not installed (openmpi-bin)')
        return self.start(MPIRUN, ROOT_ENV)

    def test_workers_take_their_ranks_from_mpirun(self):
        mpirun = self.mpirun()
        with self.server() as server:
            self.assertEqual(complete(server), self.expected)
            self.assertEqual(server.terminate(), 0)
        self.assertEqual(mpirun.wait(support.PATIENCE), 0, mpirun.stderr.read())

    def test_a_worker_that_dies_is_waited_for(self):
        mpirun = self.mpirun()
        with self.server() as server:
            self.assertEqual(complete(server), self.expected)
            # A request that is under way gets the error, unless no step of it is.
            answers = []
            thread = threading.Thread(target=lambda: answers.append(complete(server, 4000)))
            thread.start()
            while server.metrics()['tokamak_generation_tokens_total'] < 50:
                pass
            workers = subprocess.run(['pgrep', '-P', str(mpirun.pid)], capture_output=True,
                                     text=True, check=True).stdout.split()
            self.assertEqual(len(workers), 2)
            os.kill(int(workers[1]), 9)
            # mpirun ends the other one.
            self.assertNotEqual(mpirun.wait(support.PATIENCE), 0)
            self.mpirun()
            thread.join(support.PATIENCE)
            if not isinstance(answers[0], str):
                self.assertRegex(answers[0][1]['error']['message'],
                                 'the connection to the worker of rank [01] has ended')
            self.assertEqual(complete(server), self.expected)
            self.assertEqual(server.terminate(), 0)
            server.wait_for_log()
            waits = [line for line in server.log if 'for the workers of these ranks: 0, 1' in line]
            self.assertEqual(len(waits), 2, server.log)

    def test_srun_and_mpich_name_the_rank_too(self):
        for name in ('SLURM_PROCID', 'PMI_RANK'):
            with self.subTest(name):
                workers = [self.start([], {name: str(rank)}) for rank in (0, 1)]
                with self.server() as server:
                    self.assertEqual(complete(server), self.expected)
                    self.assertEqual(server.terminate(), 0)
                self.assertEqual([worker.wait(support.PATIENCE) for worker in workers], [0, 0])

    def test_a_rank_is_needed(self):
        for env, error in (({}, '--rank: is needed, unless mpirun or srun starts this worker'),
                           ({'PMI_RANK': 'first'}, 'PMI_RANK: "first" is not a rank'),
                           ({'SLURM_PROCID': '-1'}, '--rank: must not be negative, got -1')):
            worker = self.start([], env)
            self.assertEqual(worker.wait(support.PATIENCE), 1)
            self.assertIn(error, worker.stderr.read())


if __name__ == '__main__':
    support.main(needs_model=False)
