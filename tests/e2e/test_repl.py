#!/usr/bin/env python3
"""`tokamak run` in a terminal: a pseudo-terminal types and reads."""

import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import termios
import time
import unittest

import support


class Terminal:
    def __init__(self, *args, **variables):
        self.home = tempfile.TemporaryDirectory()
        self.fd, child = pty.openpty()
        environment = dict(os.environ, TERM='xterm', XDG_CACHE_HOME=self.home.name,
                           **variables)
        self.process = subprocess.Popen(
            [support.BINARY, 'run', support.model_path(), *args], stdin=child, stdout=child,
            stderr=child, env=environment, start_new_session=True,
            preexec_fn=lambda: __import__('fcntl').ioctl(0, termios.TIOCSCTTY, 0))
        os.close(child)
        self.seen = ''
        self.position = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.fd)
        self.home.cleanup()

    def _read(self, timeout):
        ready, _, _ = select.select([self.fd], [], [], timeout)
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other side is closed
            return False
        self.seen += data.decode('utf-8', 'replace')
        return bool(data)

    def expect(self, pattern):
        """Waits for the pattern in what has not been matched yet; the text before it and itself."""
        deadline = time.monotonic() + support.PATIENCE
        while True:
            found = re.search(pattern, self.seen[self.position:])
            if found:
                start = self.position
                self.position += found.end()
                return self.seen[start:self.position]
            if time.monotonic() > deadline or (
                    not self._read(1) and self.process.poll() is not None and not self._read(0)):
                raise AssertionError(f'no {pattern!r} in {self.seen[self.position:]!r}')

    def type(self, text):
        os.write(self.fd, text.encode())

    def say(self, line):
        self.type(line + '\r')

    def interrupt(self):
        self.type('\x03')


class Repl(unittest.TestCase):
    def test_conversation_commands_and_quit(self):
        with Terminal('--temperature', '0', '--max-tokens', '24') as terminal:
            terminal.expect(r'/help lists commands')
            terminal.expect('> ')
            terminal.say('What is the capital of France? Answer in one sentence.')
            terminal.expect('Paris')
            terminal.expect('\n> ')
            terminal.say('And of Germany?')
            terminal.expect('Berlin')
            terminal.expect('\n> ')
            terminal.say('/stats')
            stats = terminal.expect(r'KV blocks \d+ used')
            self.assertRegex(stats, r'\d+ prompt tokens \([1-9]\d* cached\)')
            terminal.say('/help')
            terminal.expect('/temperature X')
            terminal.say('/temperature hot')
            terminal.expect('needs a number')
            terminal.say('/temperature 0.1')
            terminal.say('/nonsense')
            terminal.expect('no command /nonsense')
            terminal.say('/clear')
            terminal.say('/quit')
            self.assertEqual(terminal.process.wait(timeout=support.PATIENCE), 0)

    def test_text_that_is_not_english(self):
        with Terminal('--temperature', '0', '--max-tokens', '4', LC_ALL='C') as terminal:
            terminal.expect('> ')
            terminal.type('Größe, 大きさ')
            terminal.expect('Größe, 大きさ')
            terminal.type('\x7f\x7f\x7f\x15/nonsensé\r')
            terminal.expect('no command /nonsensé')
            terminal.say('/quit')
            self.assertEqual(terminal.process.wait(timeout=support.PATIENCE), 0)

    def test_history_comes_back(self):
        with Terminal('--temperature', '0', '--max-tokens', '4') as terminal:
            terminal.expect('> ')
            terminal.say('Say: hello')
            terminal.expect('\n> ')
            terminal.type('\x1b[A')  # up
            terminal.expect('Say: hello')
            terminal.type('\x15\x04')  # clear the line, end of input
            self.assertEqual(terminal.process.wait(timeout=support.PATIENCE), 0)
            history = os.path.join(terminal.home.name, 'tokamak', 'history')
            self.assertEqual(os.stat(history).st_mode & 0o777, 0o600)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        with Terminal('--ignore-eos', '--temperature', '0') as terminal:
            terminal.expect('> ')
            terminal.say('Count to one thousand.')
            terminal.expect(r'\n.{20}')  # some of an answer that would not end for a long time
            terminal.interrupt()
            terminal.expect(r'\[stopped\]')
            terminal.expect('\n> ')
            for _ in range(20):  # at the prompt it does no harm either, however soon it comes
                terminal.interrupt()
                terminal.expect('\n> ')
            terminal.say('/quit')
            self.assertEqual(terminal.process.wait(timeout=support.PATIENCE), 0)

    def test_ctrl_c_ends_a_single_answer(self):
        process = subprocess.Popen(
            [support.BINARY, 'run', support.model_path(), '-p', 'Count.', '--ignore-eos'],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.assertTrue(process.stdout.read(1))
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        self.assertEqual(process.wait(timeout=support.PATIENCE), 130)


if __name__ == '__main__':
    support.main()
