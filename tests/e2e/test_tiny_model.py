#!/usr/bin/env python3
"""A directory whose template attacks the server, and a vocabulary so small that a request can
forbid all of it."""

import concurrent.futures
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import support
import tiny_model

# If a search is quadratic, one evaluation takes minutes. A message selects one.
SEARCHES = ['a.find(b)', 'a.rfind(c)', '(a ~ b).index(b)', 'b in a', 'c in a', 'a.count(b)',
            "a.replace(b, '')|length", "a|replace(c, '')|length", 'a.split(b)|length',
            'a.rsplit(c)|length', 'a.partition(b)|length', 'a.rpartition(c)|length', 'c is in(a)']
TEMPLATE = """
{%- set said = messages[-1].content -%}
{%- set n = 3000000 if said.startswith('often') else 1000000 -%}
{%- set a = 'x' * 2 * n -%}{%- set b = 'x' * n ~ 'y' -%}{%- set c = 'y' ~ 'x' * n -%}
{%- if said.startswith('slow') -%}
  {%- for i in range(99999) -%}{%- for j in range(99999) -%}{%- endfor -%}{%- endfor -%}
{%- elif said == 'stuck' -%}{{ strftime_now('stuck') }}
""" + ''.join(f"""
{{%- elif said == 'once {i}' -%}}{{{{ {search} }}}}
{{%- elif said == 'often {i}' -%}}{{%- for i in range(99999) -%}}{{{{ {search} }}}}{{%- endfor -%}}
""" for i, search in enumerate(SEARCHES)) + '{%- else -%}{{ said }}{%- endif -%}'

# Makes a thread hang: rendering calls strftime.
STUCK_STRFTIME = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
size_t strftime(char* out, size_t size, const char* format, const struct tm* time) {
  size_t (*real)(char*, size_t, const char*, const struct tm*) = dlsym(RTLD_NEXT, "strftime");
  while (strcmp(format, "stuck") == 0) pause();
  return real(out, size, format, time);
}
"""


def chat(server, content):
    status, answer = server.request('/v1/chat/completions', {
        'messages': [{'role': 'user', 'content': content}], 'max_tokens': 2})
    return status, answer.get('error', {})


def stops_listening(server):
    deadline = time.monotonic() + support.PATIENCE
    while time.monotonic() < deadline:
        try:
            socket.create_connection(('127.0.0.1', server.port)).close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:
            pass  # it stopped between the connection's first packets
        time.sleep(0.02)
    return False


class TinyModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix='tokamak-tiny-'))
        tiny_model.write(cls.folder, TEMPLATE)

    def serve(self, *args, env=None):
        return support.Server(*args, model=self.folder, env=env)

    def test_searches_in_a_template_end(self):
        with self.serve() as server:
            for i, search in enumerate(SEARCHES):
                with self.subTest(search):
                    self.assertEqual(chat(server, f'once {i}'), (200, {}))
                    status, error = chat(server, f'often {i}')
                    self.assertEqual(status, 400)
                    self.assertIn('too many steps', error['message'])
            self.assertEqual(chat(server, 'hello')[0], 200)

    def end(self, server, contents, signals):
        """Sends `contents`, then signals while all of them are being prepared. Returns the
        answers."""
        with concurrent.futures.ThreadPoolExecutor(len(contents)) as pool:
            answers = [pool.submit(chat, server, content) for content in contents]
            server.wait_until(lambda h: h['preparing'] == len(contents), 'all are being prepared')
            server.process.send_signal(signal.SIGTERM)
            self.assertTrue(stops_listening(server))
            for _ in range(signals - 1):
                server.process.send_signal(signal.SIGTERM)
            with support.timer() as seconds:
                self.assertEqual(server.process.wait(timeout=support.PATIENCE), 0)
            support.report('seconds from the last signal to the end', round(seconds[0], 2))
            return [answer.result() for answer in answers]

    def test_a_second_signal_does_not_wait_for_a_slow_template(self):
        with self.serve('--drain-seconds', '1000') as server:
            slow = 'slow' + ' ' * 1_400_000  # the longer the message, the more steps it may take
            for status, error in self.end(server, [slow] * 3, 2):
                self.assertIn(status, (400, 503), error)

    def test_threads_that_never_end_do_not_keep_the_process(self):
        compiler = shutil.which('cc') or shutil.which('c++')
        if compiler is None or support.SLOW:
            self.skipTest('needs a C compiler, and a binary without a sanitizer')
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, 'stuck.so')
            subprocess.run([compiler, '-shared', '-fPIC', '-x', 'c', '-', '-o', library, '-ldl'],
                           input=STUCK_STRFTIME, text=True, check=True)
            for seconds, signals in (('1000', 2), ('0.1', 1)):
                with self.subTest(drain_seconds=seconds), \
                        self.serve('--drain-seconds', seconds,
                                   env={'LD_PRELOAD': library}) as server:
                    for status, error in self.end(server, ['stuck'] * 2, signals):
                        self.assertEqual((status, error['code']), (503, 'shutting_down'))

    def test_min_tokens_that_leave_no_token_are_refused(self):
        everything = list(range(tiny_model.VOCAB))
        body = {'prompt': [5, 6, 7], 'max_tokens': 4, 'min_tokens': 2}
        with self.serve() as server:
            for change in ({'stop_token_ids': everything},
                           {'stop_token_ids': everything[:tiny_model.EOS]},
                           {'stop_token_ids': everything, 'ignore_eos': True, 'stream': True}):
                status, answer = server.request('/v1/completions', {**body, **change})
                self.assertEqual(status, 400, answer)
                self.assertIn('min_tokens: 2 leaves no token', answer['error']['message'])
            for change in ({'stop_token_ids': everything, 'min_tokens': 0},
                           {'stop_token_ids': everything[1:]},
                           {'stop_token_ids': everything[:tiny_model.EOS], 'ignore_eos': True}):
                status, answer = server.request('/v1/completions', {**body, **change})
                self.assertEqual(status, 200, answer)
            server.wait_until(lambda h: h['running'] == 0 and h['used_blocks'] == 0, 'nothing runs')


if __name__ == '__main__':
    support.main(needs_model=False)
