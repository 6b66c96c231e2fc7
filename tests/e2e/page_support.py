"""Shared by the tests of the web page: a server, a browser, and checks after every test."""

import json
import sys
import unittest

import browser
import support
from browser import Browser
from stand_in import StandIn
from support import Server

ENDED = 'return !document.querySelector(".pending") && document.getElementById("stop").hidden && ' \
        'document.querySelectorAll(".message.assistant").length >= args[0]'


class PageTest(unittest.TestCase):
    """One server and one browser for all tests; each test starts with empty storage."""

    @classmethod
    def start_server(cls):
        return Server('--num-blocks', '600')

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(cls.start_server())
        cls.browser = cls.enterClassContext(Browser())

    def setUp(self):
        self.stand_in = self.enterContext(StandIn(self.server.port))
        self.browser.resize(1440, 900)
        self.browser.colours('light')

    def tearDown(self):
        self.browser.open('about:blank')  # ends everything that the page does
        said = [entry['message'] for entry in self.browser.log()
                if 'Content Security Policy' in entry['message'] or
                entry['level'] == 'SEVERE' and 'Failed to load resource' not in entry['message']]
        self.assertEqual(said, [])
        here = (self.stand_in.url + '/', self.server.url + '/')
        elsewhere = [url for url in self.browser.requested()
                     if not url.startswith(here) and
                     not url.startswith(('about:', 'blob:' + self.stand_in.url, 'chrome:', 'data:'))]
        self.assertEqual(elsewhere, [])

    def open(self, url=None, settings=None):
        """Opens the page as on a first visit."""
        url = url or self.stand_in.url
        self.browser.open(url + '/page/notices.txt')  # same origin, but without the page's code
        self.browser.run('localStorage.clear(); sessionStorage.clear();'
                         'if (args[0]) localStorage.setItem("tokamak.settings", args[0])',
                         settings and json.dumps(settings))
        self.browser.open(url + '/')
        self.browser.wait('return document.querySelector(".welcome")')

    def say(self, text, answers=1):
        self.browser.one('#input').type(text)
        self.browser.press('Enter')
        self.browser.wait(ENDED, answers, what='the answer has ended')

    def messages(self):
        """The messages of the latest conversation in the browser's storage."""
        kept = self.browser.run(
            'return Object.keys(localStorage).filter((k) => k.startsWith("tokamak.conversation."))'
            '.map((k) => JSON.parse(localStorage[k])).sort((a, b) => b.updated - a.updated)')
        return kept[0]['messages']


# A state in the format of /debug/state.
STATE = {
    'version': 1, 'time': 1000.0, 'uptime_s': 60.0,
    'build': {'version': '0.1.0', 'fingerprint': 'fp'},
    'model': {'id': 'm', 'architecture': 'llama', 'parameters': 134515008, 'weight_bytes': 9 * 10**7,
              'max_context': 8192, 'kv_token_bytes': 23040, 'device': 'cpu', 'backend': 'cpu/avx512',
              'threads': 2},
    'engine': {'steps': 10, 'running': 2, 'waiting': 1, 'paused': 1, 'preemptions': 0, 'prompt_tokens': 200,
               'generated_tokens': 50, 'queried_prompt_tokens': 200, 'cached_prompt_tokens': 50,
               'drafts': 60, 'accepted_drafts': 45, 'drafts_at': [40, 20], 'accepted_drafts_at': [36, 9],
               'saved_seconds': 1.5,
               'rates': {'prompt_tok_s': 0.0, 'output_tok_s': 123.4, 'steps_s': 60.0,
                         'weight_gb_s': 6.0, 'kv_gb_s': 0.5, 'ceiling_gb_s': 13.0}},
    'sequences': [{'request': f'chatcmpl-{i}', 'choice': 0, 'state': state, 'prompt_tokens': 100,
                   'computed_tokens': 100 - 30 * i, 'output_tokens': 5, 'cached_tokens': 25,
                   'priority': 0, 'age_s': 1.5, 'blocks': 7}
                  for i, state in enumerate(('running', 'running', 'waiting', 'paused'))],
    'sequences_total': 4,
    'kv': {'block_tokens': 16, 'groups': [{
        'name': 'kv', 'kind': 'full', 'total': 20, 'free': 8, 'referenced': 9, 'cached': 3,
        'host_total': 10, 'host_used': 1, 'map': '111112239ccc........', 'map_truncated': False}]},
    'prefix_tree': {'nodes_total': 4, 'nodes': [
        {'id': 0, 'parent': -1, 'blocks': 0, 'readers': 0, 'age_s': 0.0},
        {'id': 1, 'parent': 0, 'blocks': 4, 'readers': 2, 'age_s': 1.0},
        {'id': 2, 'parent': 1, 'blocks': 2, 'readers': 1, 'age_s': 1.0},
        {'id': 3, 'parent': 1, 'blocks': 6, 'readers': 0, 'age_s': 9.0}]},
    'requests': [{'id': f'chatcmpl-{i}', 'state': state, 'arrived': 990.0 + i, 'admitted': 991.0 + i,
                  'first_token': 992.0 + i, 'ended': None if state == 'running' else 996.0 + i,
                  'prompt_tokens': 100, 'cached_tokens': 25, 'output_tokens': 5, 'preemptions': 0}
                 for i, state in enumerate(('running', 'stop', 'length', 'cancelled', 'error'))],
}


def main(needs_model=True):
    if not browser.chromium():
        print('skipped: chromium or chromedriver is not installed', file=sys.stderr)
        sys.exit(support.SKIPPED)
    support.main(needs_model)
