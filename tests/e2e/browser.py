"""Headless Chromium through chromedriver: the part of the WebDriver protocol that tests need.

https://www.w3.org/TR/webdriver2/ defines the commands; /goog/cdp/execute and /se/log are
chromedriver's.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request

import support

ELEMENT = 'element-6066-11e4-a52e-4f735466cecf'
KEYS = {'Enter': '\ue007', 'Escape': '\ue00c', 'Tab': '\ue004', 'Shift': '\ue008', 'Alt': '\ue00a',
        'ArrowUp': '\ue013', 'Delete': '\ue017', 'Space': ' '}


def chromium():
    """Returns (browser, driver), or None if either is not installed."""
    browser = shutil.which('chromium') or shutil.which('google-chrome')
    driver = shutil.which('chromedriver')
    return (browser, driver) if browser and driver else None


class WebDriverError(AssertionError):
    pass


class Element:
    def __init__(self, browser, reference):
        self.browser, self.reference = browser, reference

    def _do(self, method, path, body=None):
        return self.browser.do(method, f'/element/{self.reference}/{path}', body)

    def click(self):
        self._do('POST', 'click', {})

    def type(self, text):
        self._do('POST', 'value', {'text': text})

    @property
    def text(self):
        return self._do('GET', 'text')

    @property
    def label(self):
        """The accessible name that the browser computes."""
        return self._do('GET', 'computedlabel')

    @property
    def role(self):
        return self._do('GET', 'computedrole')


def start_driver(driver):
    """Starts chromedriver and returns its process and port. Retries, because chromedriver picks a
    free IPv4 port and exits if another program has the same IPv6 port."""
    for _ in range(10):
        process = subprocess.Popen([driver, '--port=0'], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        for line in process.stdout:
            said.append(line)
            found = re.search(r'started successfully on port (\d+)', line)
            if found:
                return process, int(found.group(1))
        process.wait()
    raise WebDriverError('chromedriver did not start: ' + ''.join(said))


class Browser:
    """A fresh profile in a window of the given size. Use it in a with statement."""

    def __init__(self, width=1440, height=900):
        browser, driver = chromium()
        self.driver, port = start_driver(driver)
        threading.Thread(target=self.driver.stdout.read, daemon=True).start()
        self.url = f'http://127.0.0.1:{port}/session'
        # The browser reaches only the server under test and makes no background requests.
        arguments = ['--headless=new', f'--window-size={width},{height}', '--disable-dev-shm-usage',
                     '--disable-gpu', '--hide-scrollbars', '--no-first-run', '--lang=en',
                     '--disable-background-networking', '--disable-component-update',
                     '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1']
        if os.geteuid() == 0:
            arguments.append('--no-sandbox')  # as root, Chromium requires this
        answer = self._request('POST', '', {'capabilities': {'alwaysMatch': {
            'browserName': 'chrome',
            'goog:chromeOptions': {'binary': browser, 'args': arguments},
            'goog:loggingPrefs': {'browser': 'ALL', 'performance': 'ALL'},
        }}})
        self.url += '/' + answer['sessionId']

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._request('DELETE', '')
        finally:
            self.driver.terminate()
            self.driver.wait()

    def _request(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method,
                                         headers={'Content-Type': 'application/json'})
        try:
            with urllib.request.urlopen(request, timeout=support.PATIENCE) as response:
                return json.load(response)['value']
        except urllib.error.HTTPError as error:
            value = json.loads(error.read())['value']
            raise WebDriverError(f'{value["error"]}: {value["message"].splitlines()[0]}') from None

    def do(self, method, path, body=None):
        return self._request(method, path, body)

    def open(self, url):
        self.do('POST', '/url', {'url': url})

    def run(self, script, *arguments):
        """Returns the value of a function body, which may return a promise."""
        wrapped = ('const done = arguments[arguments.length - 1];'
                   '(async (...args) => {' + script + '})(...[...arguments].slice(0, -1))'
                   '.then(done, (error) => done({failed: String(error)}))')
        value = self.do('POST', '/execute/async', {'script': wrapped, 'args': list(arguments)})
        if isinstance(value, dict) and 'failed' in value:
            raise WebDriverError(value['failed'])
        return value

    def all(self, selector):
        found = self.do('POST', '/elements', {'using': 'css selector', 'value': selector})
        return [Element(self, element[ELEMENT]) for element in found]

    def one(self, selector):
        found = self.all(selector)
        if not found:
            raise WebDriverError(f'no {selector}')
        return found[0]

    def wait(self, script, *arguments, what=None):
        """Waits until a function body returns a true value, and returns it."""
        deadline = time.monotonic() + support.PATIENCE
        while True:
            value = self.run(script, *arguments)
            if value:
                return value
            if time.monotonic() > deadline:
                raise WebDriverError(f'gave up waiting until {what or script}')
            time.sleep(0.03)

    def press(self, *keys):
        """Presses keys together in the focused element."""
        codes = [KEYS.get(key, key) for key in keys]
        actions = [{'type': 'keyDown', 'value': code} for code in codes]
        actions += [{'type': 'keyUp', 'value': code} for code in reversed(codes)]
        self.do('POST', '/actions', {'actions': [{'type': 'key', 'id': 'keys', 'actions': actions}]})

    def type(self, text):
        actions = []
        for character in text:
            actions += [{'type': 'keyDown', 'value': character}, {'type': 'keyUp', 'value': character}]
        self.do('POST', '/actions', {'actions': [{'type': 'key', 'id': 'keys', 'actions': actions}]})

    def devtools(self, command, **parameters):
        return self.do('POST', '/goog/cdp/execute', {'cmd': command, 'params': parameters})

    def resize(self, width, height):
        # Emulates the size, because a window has a minimum width and a page has none.
        self.devtools('Emulation.setDeviceMetricsOverride', width=width, height=height,
                      deviceScaleFactor=1, mobile=False)

    def colours(self, scheme):
        self.devtools('Emulation.setEmulatedMedia',
                      features=[{'name': 'prefers-color-scheme', 'value': scheme},
                                {'name': 'prefers-reduced-motion', 'value': 'reduce'}])

    def log(self):
        """The page's console messages since the last call: [{level, source, message}]."""
        return self.do('POST', '/se/log', {'type': 'browser'})

    def requested(self):
        """The URLs requested since the last call."""
        urls = []
        for entry in self.do('POST', '/se/log', {'type': 'performance'}):
            message = json.loads(entry['message'])['message']
            if message['method'] == 'Network.requestWillBeSent':
                urls.append(message['params']['request']['url'])
        return urls

    def screenshot(self, path):
        with open(path, 'wb') as file:
            file.write(base64.b64decode(self.do('GET', '/screenshot')))
