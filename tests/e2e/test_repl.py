#!/usr/bin/env python3
"""Tests `tokamak run` in a pseudo-terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

import support


class Terminal:
    def __init__(self, *args, columns=0, shell='exec "$@"', **variables):
        """`shell`: the script that runs the program, which it gets as "$@"."""
        self.home = tempfile.TemporaryDirectory()
        self.fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
        environment = dict(os.environ, **{'TERM': 'xterm', 'XDG_CACHE_HOME': self.home.name,
                                          **variables})
        self.process = subprocess.Popen(
            ['sh', '-c', shell, 'sh', support.BINARY, 'run', support.model_path(), *args],
            stdin=child, stdout=child, stderr=child, env=environment, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
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
        except OSError:  # the other side was closed
            return False
        self.seen += data.decode('utf-8', 'replace')
        return bool(data)

    def expect(self, pattern):
        """Waits for the pattern in text not yet matched. Returns the text up to and including the
        match."""
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

    def paste(self, text):
        """Sends what a terminal sends if the program has requested bracketed paste."""
        if self.seen.rfind('\x1b[?2004h') <= self.seen.rfind('\x1b[?2004l'):
            raise AssertionError('the program has not asked for marks')
        self.type('\x1b[200~' + text.replace('\n', '\r') + '\x1b[201~')

    def prompt_tokens(self):
        """The number of tokens of the last prompt."""
        self.say('/stats')
        return int(re.search(r'last answer: (\d+) prompt tokens',
                             self.expect(r'prompt tokens')).group(1))

    def interrupt(self):
        self.type('\x03')

    def is_edited(self):
        """Whether the program gets the terminal's keys one by one."""
        return not termios.tcgetattr(self.fd)[3] & (termios.ICANON | termios.ECHO)


PROMPT = r'\x1b\[\?2004h\s*> '


def prompt_tokens(message):
    """Tokens of a conversation's first message, as a single answer counts them."""
    answer = support.tokamak('run', support.model_path(), '-p', message, '--max-tokens', '1', '--json')
    return json.loads(answer.stdout)['usage']['prompt_tokens']


class Repl(unittest.TestCase):
    def test_pasted_lines_are_one_message(self):
        message = 'Say one.\nSay two, größer.\nSay three.'
        with Terminal('--temperature', '0', '--max-tokens', '4') as terminal:
            terminal.expect(PROMPT)
            terminal.paste(message)
            terminal.expect('three')
            terminal.say('')
            terminal.expect(PROMPT)
            self.assertEqual(terminal.prompt_tokens(), prompt_tokens(message))
            # The history recalls it as one message, and pasted text can be edited.
            terminal.say('/clear')
            terminal.expect(PROMPT)
            terminal.type('\x1b[A\x1b[A\x1b[A')
            terminal.expect('Say three.')
            terminal.paste('\nSay four!\n')
            terminal.expect('four!')
            terminal.say('\x7f.')
            terminal.expect(PROMPT)
            self.assertEqual(terminal.prompt_tokens(), prompt_tokens(message + '\nSay four.'))
            terminal.say('/quit')
            terminal.expect(r'\x1b\[\?2004l')
            self.assertEqual(terminal.process.wait(timeout=support.PATIENCE), 0)
            self.assertNotIn('\x1b[?2004h', terminal.seen[terminal.position:])

    def test_several_lines_can_be_typed(self):
        message = 'Say one.\nSay two.'
        with Terminal('--temperature', '0', '--max-tokens', '4') as terminal:
            for typed in ('Say one.\x1b\rSay two.', 'Say one.\\\rSay two.'):
                terminal.expect(PROMPT)
                terminal.say(typed)
                terminal.expect(PROMPT if '\\' not in typed else r'\. Say two\.[^$]*' + PROMPT)
                self.assertEqual(terminal.prompt_tokens(), prompt_tokens(message), typed)
                terminal.expect(PROMPT)
                terminal.say('/clear')
            terminal.say('/quit')
            self.assertEqual(terminal.process.wait(timeout=support.PATIENCE), 0)

    def test_a_pasted_path_is_a_message(self):
        with Terminal('--temperature', '0', '--max-tokens', '4') as terminal:
            terminal.expect(PROMPT)
            terminal.paste('/etc/motd\nis a file.')
            terminal.expect('file')
            terminal.say('')
            terminal.expect(PROMPT)
            self.assertNotIn('no command', terminal.seen)
            self.assertEqual(terminal.prompt_tokens(), prompt_tokens('/etc/motd\nis a file.'))

    def test_words_are_not_broken_at_the_edge(self):
        message = 'Why is the sky blue?'
        args = ['--temperature', '0', '--max-tokens', '80']
        answer = support.tokamak('run', support.model_path(), '-p', message, *args).stdout
        with Terminal(*args, columns=32) as terminal:
            terminal.expect(PROMPT)
            terminal.say(message)
            terminal.expect(r'\x1b\[\?2004l')
            shown = terminal.expect(r'\x1b\[\?2004h')[:-len('\x1b[?2004h')]
        self.assertEqual(shown.split(), answer.split())
        self.assertLessEqual(max(map(len, shown.splitlines())), 32)
        self.assertGreater(max(map(len, answer.splitlines())), 32)

    def test_a_plain_terminal_is_sent_no_marks(self):
        with Terminal('--max-tokens', '4', TERM='dumb') as terminal:
            terminal.expect('> ')
            terminal.say('/quit')
            self.assertEqual(terminal.process.wait(timeout=support.PATIENCE), 0)
            self.assertNotIn('2004', terminal.seen)

    def test_conversation_commands_and_quit(self):
        with Terminal('--temperature', '0', '--max-tokens', '24') as terminal:
            terminal.expect(r'/help lists commands')
            terminal.expect('> ')
            terminal.say('What is the capital of France? Answer in one sentence.')
            terminal.expect('Paris')
            terminal.expect(PROMPT)
            terminal.say('And of Germany?')
            terminal.expect('Berlin')
            terminal.expect(PROMPT)
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
            terminal.expect(PROMPT)
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
            terminal.expect(r'\n.{20}')  # the start of a very long answer
            terminal.interrupt()
            terminal.expect(r'\[stopped\]')
            terminal.expect(PROMPT)
            for _ in range(20):  # at the prompt it does no harm either, however soon it is pressed
                terminal.interrupt()
                terminal.expect(PROMPT)
            terminal.say('/quit')
            self.assertEqual(terminal.process.wait(timeout=support.PATIENCE), 0)

    def test_signals_that_end_it_give_the_terminal_back(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            for line in (None, 'Count to one thousand.'):
                with self.subTest(number=number, line=line), Terminal('--ignore-eos') as terminal:
                    terminal.expect(PROMPT)
                    self.assertTrue(terminal.is_edited())
                    if line:
                        terminal.say(line)
                        terminal.expect(r'\n.{20}')
                    terminal.process.send_signal(number)
                    if not line:
                        terminal.expect(r'\x1b\[\?2004l')
                    self.assertEqual(terminal.process.wait(timeout=support.PATIENCE), 0)
                    self.assertFalse(terminal.is_edited())
                    self.assertNotIn('\x1b[?2004h', terminal.seen[terminal.position:])

    def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(self):
        with Terminal('--max-tokens', '4', shell='set -m; "$@"; stty -a; fg') as terminal:
            for typed in ('/he', 'lp'):
                terminal.expect(r'\x1b\[\?2004h')
                terminal.type(typed)
                terminal.expect(typed)
                if typed == '/he':
                    terminal.type('\x1a')
                    terminal.expect(r'\x1b\[\?2004l')
                    terminal.expect(r'susp = \^Z')
                    terminal.expect(r'\sisig icanon iexten echo\s')
            self.assertTrue(terminal.is_edited())
            terminal.say('')
            terminal.expect('/temperature X')
            terminal.say('/quit')
            self.assertEqual(terminal.process.wait(timeout=support.PATIENCE), 0)

    def test_what_ends_it_while_it_is_stopped_ends_it_when_it_goes_on(self):
        shell = 'set -m; "$@" & program=$!; fg; kill -TERM $program; echo stopped; fg; echo code $?'
        with Terminal(shell=shell) as terminal:
            terminal.expect(PROMPT)
            terminal.type('\x1a')
            terminal.expect('stopped')
            terminal.expect('code 0')
            terminal.expect('\n')
            self.assertFalse(terminal.is_edited())

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
