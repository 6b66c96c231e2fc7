#!/usr/bin/env python3
"""Makes docs/page.png: the page with a conversation while the engine works.

screenshot.py [OUTPUT.png] [light|dark], with the real model. Takes the picture while several
requests with a shared prefix run.
"""

import sys
import threading
import time

import support
from browser import Browser
from support import Server

RULES = ('You are a patient teacher. Answer in short paragraphs, with an example where that helps, '
         'and never with more than the question asks for. ') * 8
QUESTIONS = ['What is a hash table?', 'Why do leaves turn red?', 'How does a sailboat sail upwind?',
             'What is entropy?', 'Who was Ada Lovelace?', 'How do vaccines work?',
             'What is a prime number?', 'Why is the sky blue?']


def load(server, stop):
    """Keeps some requests running until `stop` is set, with a pause between a client's requests."""
    def client(i):
        turn = i
        while not stop.is_set():
            topic = RULES + ('Use simple words. ' * 30 if turn % 2 else 'Be precise. ' * 40)
            server.request('/v1/chat/completions', {
                'messages': [{'role': 'system', 'content': topic},
                             {'role': 'user', 'content': QUESTIONS[turn % len(QUESTIONS)]}],
                'max_tokens': 60 + 70 * (turn % 4), 'seed': turn})
            turn += 3
            stop.wait(0.2)
    threads = [threading.Thread(target=client, args=(i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    return threads


def main():
    output = sys.argv[1] if len(sys.argv) > 1 else str(support.ROOT / 'docs' / 'page.png')
    scheme = sys.argv[2] if len(sys.argv) > 2 else 'light'
    with Server('--num-blocks', '640') as server, Browser() as browser:
        browser.resize(1440, 1290)
        browser.colours(scheme)
        browser.open(server.url + '/page/notices.txt')
        browser.run('localStorage.clear(); localStorage["tokamak.settings"] = args[0]',
                    '{"temperature": 0, "max_tokens": 260}')
        browser.open(server.url + '/')
        browser.wait('return document.querySelector(".welcome")')
        ended = 'return document.getElementById("stop").hidden && ' \
                'document.querySelectorAll(".message.assistant").length === args[0]'
        for text in ('Name three rivers of Europe.', 'Why do leaves turn red in autumn?'):
            browser.one('#new').click()
            browser.one('#input').type(text)
            browser.press('Enter')
            browser.wait(ended, 1)
        browser.one('#new').click()
        browser.one('#input').type('Write a Python function that checks whether a word is a palindrome.')
        browser.press('Enter')
        browser.wait(ended, 1)
        stop = threading.Event()
        threads = load(server, stop)
        time.sleep(10)
        browser.one('#input').type('Now explain it step by step.')
        browser.press('Enter')
        browser.wait('return document.querySelectorAll(".message.assistant .body")[1]'
                     '?.textContent.length > 350')
        browser.screenshot(output)
        stop.set()
        for thread in threads:
            thread.join()
    print(output)


if __name__ == '__main__':
    main()
