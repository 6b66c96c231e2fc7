#!/usr/bin/env python3
"""Tests hostile paths, hosts and framing over raw sockets; TLS; browsers; changing keys."""

import http.client
import json
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

import support
from support import Server, make_certificate

KEY = b'Authorization: Bearer secret\r\n'
HOST = b'Host: localhost\r\n'
JSON = b'Content-Type: application/json\r\n'
BODY = b'{"prompt": "a", "max_tokens": 1}'
POST = b'POST /v1/completions HTTP/1.1\r\n' + HOST + JSON

# Each is refused with 4xx, with and without the key. KEY? stands for the key's line, or nothing.
TRICKS = [
    # Paths. The server compares them as sent; it decodes, joins and truncates nothing.
    *[b'GET ' + target + b' HTTP/1.1\r\n' + HOST + b'KEY?\r\n' for target in (
        b'//v1/models', b'///v1/models', b'/v1//models', b'/v1/models/', b'/v1/models/.',
        b'/v1/../v1/models', b'/./v1/models', b'/v1/%2e%2e/v1/models', b'/%2e%2e/%2e%2e/etc/passwd',
        b'/../../../../etc/passwd', b'/v1%2fmodels', b'/%76%31/models', b'/V1/MODELS',
        b'/v1/models%00', b'/v1/models;a=b', b'/v1/models%20', b'/health/', b'/health%2f..',
        b'/health/../v1/models', b'//health', b'/health;', b'/.git/config', b'/index.php',
        b'http://localhost/v1/models', b'http://evil.example/v1/models', b'//evil.example/health',
        b'*', b'v1/models', b'\\v1\\models', b'/v1/models#a', b'/v1/\xff', b'/v1/models HTTP/1.1',
        b'/v1/completions', b'/v1/models\x00', b'/v1/models\x0b')],
    # Methods.
    *[method + b' /v1/completions HTTP/1.1\r\n' + HOST + b'KEY?Content-Length: 0\r\n\r\n'
      for method in (b'GET', b'PUT', b'DELETE', b'PATCH', b'TRACE', b'OPTIONS', b'PROPFIND', b'get',
                     b'POSTPOST', b'P@ST', b'POST\x00')],
    b'CONNECT evil.example:80 HTTP/1.1\r\n' + HOST + b'KEY?\r\n',
    b'GET /v1/completions HTTP/1.1\r\n' + HOST + b'KEY?X-HTTP-Method-Override: POST\r\n\r\n',
    b'POST /v1/models HTTP/1.1\r\n' + HOST + b'KEY?X-HTTP-Method: GET\r\nContent-Length: 0\r\n\r\n',
    b'GET /v1/nothing HTTP/1.1\r\n' + HOST + b'KEY?X-Original-URL: /v1/models\r\n\r\n',
    b'GET /v1/nothing HTTP/1.1\r\n' + HOST + b'KEY?X-Rewrite-URL: /v1/models\r\n\r\n',
    # Hosts.
    *[b'GET /v1/models HTTP/1.1\r\n' + hosts + b'KEY?\r\n' for hosts in (
        b'', HOST + HOST, HOST + b'host: evil.example\r\n', b'Host:\r\n', b'Host: evil.example\r\n',
        b'Host: localhost.evil.example\r\n', b'Host: localhost:80@evil.example\r\n',
        b'Host: localhost, evil.example\r\n', b'Host: 10.0.0.1\r\n', b'Host: [::2]\r\n',
        b'Host: localhost/\r\n', b'Host : localhost\r\n', b' Host: localhost\r\n')],
    # Framing.
    *[POST + b'KEY?' + rest for rest in (
        b'Content-Length: 32\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
        b'Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n',
        b'Content-Length: 32\r\nContent-Length: 0\r\n\r\n' + BODY,
        b'Content-Length: 32\r\nContent-Length: 32\r\n\r\n' + BODY,
        b'Content-Length: 32, 32\r\n\r\n' + BODY, b'Content-Length: +32\r\n\r\n' + BODY,
        b'Content-Length: 0x20\r\n\r\n' + BODY, b'Content-Length: -1\r\n\r\n' + BODY,
        b'Content-Length: 32 \t x\r\n\r\n' + BODY, b'Content-Length:\r\n\r\n' + BODY,
        b'Content-Length: 99999999999999999999\r\n\r\n' + BODY,
        b'Content_Length: 32\r\nContent-Length: 1e1\r\n\r\n' + BODY,
        b'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n',
        b'Transfer-Encoding: gzip\r\n\r\n', b'Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n',
        b'Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n',
        b'Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n',
        b'Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n',
        b'Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n',
        b'Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF1\r\n',
        b'Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n',
        b'Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n', b'Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n\r\n',
        b'Transfer-Encoding: chunked\r\n\r\n1;' + b'x' * 5000 + b'\r\na\r\n0\r\n\r\n',
        b'Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n',
        b'X: a\r\n b\r\nContent-Length: 32\r\n\r\n' + BODY, b'X: a\nContent-Length: 32\r\n\r\n' + BODY,
        b'X: a\x00b\r\nContent-Length: 32\r\n\r\n' + BODY, b'X: a\rb\r\n\r\n', b'X\r\n\r\n',
        b': a\r\n\r\n', b'X y: a\r\n\r\n', b'X: ' + b'a' * 20000 + b'\r\n\r\n', b'X: a\r\n' * 200 + b'\r\n',
        b'Expect: tea\r\nContent-Length: 32\r\n\r\n' + BODY,
        b'Content-Type: text/plain\r\nContent-Length: 32\r\n\r\n' + BODY)],
    # Versions and other protocols.
    b'GET /v1/models\r\n\r\n', b'GET /v1/models HTTP/0.9\r\n\r\n',
    b'GET /v1/models HTTP/2.0\r\n' + HOST + b'KEY?\r\n', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    b'GET /v1/models HTTP/1.1 \r\n' + HOST + b'KEY?\r\n',
    b'GET /v1/models HTTP/1.1\n' + HOST + b'KEY?\r\n', b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03',
    b'\x00' * 100, b'\xff' * 100, b'\r\n\r\n\r\nGET / HTTP/1.1\r\n', b'SSH-2.0-x\r\n', b'{"a": 1}\r\n',
    b'GET ' + b'/' * 20000 + b' HTTP/1.1\r\n' + HOST + b'KEY?\r\n',
    # Requests from pages of other sites.
    *[POST + b'KEY?' + header + b'Content-Length: 32\r\n\r\n' + BODY for header in (
        b'Origin: https://evil.example\r\n', b'Origin: null\r\n', b'Origin: http://localhost:1\r\n',
        b'Sec-Fetch-Site: cross-site\r\n', b'Sec-Fetch-Site: same-site\r\n')],
    b'POST /v1/completions HTTP/1.1\r\n' + HOST + b'KEY?Content-Type: text/plain\r\n'
    b'Content-Length: 32\r\n\r\n' + BODY,
    b'OPTIONS /v1/completions HTTP/1.1\r\n' + HOST + b'KEY?Origin: https://evil.example\r\n'
    b'Access-Control-Request-Method: POST\r\n\r\n',
]
# Answers that a client without a key may get: errors about its bytes or its missing key.
WITHOUT_A_KEY = {400, 401, 403, 413, 417, 431}


def exchange(port, request):
    """Sends bytes and returns the first answer: (status, head, rest)."""
    with socket.create_connection(('127.0.0.1', port), timeout=30) as connection:
        try:
            connection.sendall(request)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = b''
        while b'\r\n\r\n' not in answer:
            data = connection.recv(65536)
            if not data:
                break
            answer += data
    head, _, rest = answer.partition(b'\r\n\r\n')
    return (int(head.split(b' ', 2)[1]) if head else 0), head.decode('latin-1'), rest


def keys_file(folder, *keys):
    path = pathlib.Path(folder) / 'keys'
    path.write_text('\n'.join(keys) + '\n')
    return str(path)


class Tricks(unittest.TestCase):
    def test_each_is_refused_and_harms_nobody(self):
        with tempfile.TemporaryDirectory() as folder, \
                Server('--api-key-file', keys_file(folder, 'secret')) as server:
            for trick in TRICKS:
                for key, allowed in ((b'', WITHOUT_A_KEY), (KEY, set(range(400, 500)) - {401})):
                    status, head, _ = exchange(server.port, trick.replace(b'KEY?', key))
                    if b'KEY?' in trick or status != 401:
                        self.assertIn(status, allowed, (trick[:200], key, head))
                    self.assertIn('nosniff', head)
            support.report('tricks refused', len(TRICKS))
            status, _ = server.request('/v1/completions', {'prompt': 'a', 'max_tokens': 1},
                                       {'Authorization': 'Bearer secret'})
            self.assertEqual(status, 200)
            self.assertEqual(server.terminate(), 0)

    def test_wrong_keys_are_all_alike(self):
        with tempfile.TemporaryDirectory() as folder, \
                Server('--api-key-file', keys_file(folder, 'secret')) as server:
            answers = set()
            for value in ('', 'Bearer', 'Bearer x', 'Bearer s', 'Bearer secre', 'Bearer secrets',
                          'Bearer SECRET', 'Basic secret', 'secret', 'Bearer secret secret'):
                header = f'Authorization: {value}\r\n' if value else ''
                answers.add(exchange(server.port, b'GET /v1/models HTTP/1.1\r\n' + HOST +
                                     header.encode() + b'\r\n'))
            self.assertEqual([status for status, _, _ in answers], [401])

    def test_no_second_request_hides_in_a_first_one(self):
        hidden = b'GET /v1/models HTTP/1.1\r\n' + HOST + b'\r\n'
        with Server() as server:
            for framing in (b'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n',
                            b'Content-Length: 4\r\nContent-Length: 0\r\n'):
                with socket.create_connection(('127.0.0.1', server.port), timeout=30) as connection:
                    connection.sendall(POST + framing + b'\r\n0\r\n\r\n' + hidden)
                    answers = b''
                    while data := connection.recv(65536):
                        answers += data
                self.assertEqual(answers.count(b'HTTP/1.1 '), 1, answers)
                self.assertTrue(answers.startswith(b'HTTP/1.1 400'), answers)


class Reloading(unittest.TestCase):
    def test_keys_are_read_again_at_sighup(self):
        with tempfile.TemporaryDirectory() as folder:
            path = keys_file(folder, 'old')
            with Server('--api-key-file', path) as server:
                def status(key):
                    return server.request('/v1/models', headers={'Authorization': f'Bearer {key}'})[0]

                self.assertEqual((status('old'), status('new')), (200, 401))
                keys_file(folder, 'new')
                self.assertEqual((status('old'), status('new')), (200, 401))
                server.process.send_signal(signal.SIGHUP)
                wait_until(lambda: status('new') == 200)
                self.assertEqual(status('old'), 401)
                pathlib.Path(path).unlink()
                server.process.send_signal(signal.SIGHUP)
                wait_until(lambda: any('old API keys stay' in line for line in server.log))
                self.assertEqual(status('new'), 200)
                self.assertEqual(server.terminate(), 0)


def wait_until(condition):
    deadline = time.monotonic() + support.PATIENCE
    while not condition():
        assert time.monotonic() < deadline, 'waited in vain'
        time.sleep(0.05)


@unittest.skipUnless(shutil.which('openssl'), 'there is no openssl')
class Tls(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.cert, self.key = make_certificate(self.folder.name, 'first')

    def serve(self):
        return Server('--tls-cert', self.cert, '--tls-key', self.key)

    def connect(self, server, **options):
        context = ssl.create_default_context(cafile=options.pop('cafile', self.cert))
        for name, value in options.items():
            setattr(context, name, value)
        return http.client.HTTPSConnection('localhost', server.port, context=context, timeout=support.PATIENCE)

    def name_of(self, server):
        """The common name of the certificate that a new connection receives."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with socket.create_connection(('127.0.0.1', server.port), timeout=30) as plain:
            with context.wrap_socket(plain) as connection:
                der = connection.getpeercert(binary_form=True)
        return 'second' if b'second' in der else 'first'

    def test_answers_and_streams(self):
        with self.serve() as server:
            connection = self.connect(server)
            body = json.dumps({'prompt': 'a', 'max_tokens': 5, 'stream': True, 'ignore_eos': True})
            for _ in range(2):  # on one connection
                connection.request('POST', '/v1/completions', body,
                                   {'Content-Type': 'application/json'})
                response = connection.getresponse()
                self.assertEqual(response.status, 200)
                self.assertTrue(response.read().endswith(b'data: [DONE]\n\n'))
            # Larger than a TLS record and than a socket's buffer.
            large = json.dumps({'prompt': 'a' * 3_000_000})
            connection.request('POST', '/v1/completions', large, {'Content-Type': 'application/json'})
            response = connection.getresponse()
            self.assertEqual(response.status, 400)
            self.assertIn(b'8192', response.read())
            connection.close()
            self.assertEqual(server.terminate(), 0)

    def test_a_client_that_goes_away_is_cancelled(self):
        with self.serve() as server:
            for stream in (True, False):
                connection = self.connect(server)
                connection.request('POST', '/v1/completions', json.dumps({
                    'prompt': 'a', 'max_tokens': 4000, 'ignore_eos': True, 'stream': stream}),
                    {'Content-Type': 'application/json'})
                wait_until(lambda: self.health(server)['running'] == 1)
                connection.close()
                wait_until(lambda: self.health(server)['running'] == 0)
            self.assertLess(self.health(server)['generated_tokens'], 4000)

    def health(self, server):
        connection = self.connect(server)
        connection.request('GET', '/health')
        health = json.loads(connection.getresponse().read())
        connection.close()
        return health

    def test_only_sound_protocols(self):
        with self.serve() as server:
            for version, cipher in (('TLSv1_2', None), ('TLSv1_3', None)):
                connection = self.connect(server, maximum_version=ssl.TLSVersion[version],
                                          minimum_version=ssl.TLSVersion[version])
                connection.connect()
                used = connection.sock.cipher()
                self.assertIn(used[1], ('TLSv1.2', 'TLSv1.3'))
                self.assertRegex(used[0], 'GCM|CHACHA20')
                connection.close()
            for args in (['-tls1_1', '-cipher', 'ALL:@SECLEVEL=0'],
                         ['-tls1_2', '-cipher', 'AES128-SHA'],
                         ['-tls1_2', '-cipher', 'ECDHE-ECDSA-AES128-SHA'], ['-alpn', 'h2']):
                client = subprocess.run(['openssl', 's_client', '-connect',
                                         f'127.0.0.1:{server.port}', *args], input=b'',
                                        capture_output=True, timeout=30)
                self.assertNotEqual(client.returncode, 0, args)
            context = ssl.create_default_context(cafile=self.cert)
            context.set_alpn_protocols(['h2', 'http/1.1'])
            with socket.create_connection(('127.0.0.1', server.port), timeout=30) as plain:
                with context.wrap_socket(plain, server_hostname='localhost') as connection:
                    self.assertEqual(connection.selected_alpn_protocol(), 'http/1.1')
            # Clients without TLS, and those that never finish a handshake, do not harm others.
            with socket.create_connection(('127.0.0.1', server.port), timeout=30) as plain, \
                    socket.create_connection(('127.0.0.1', server.port), timeout=30):
                plain.sendall(b'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n')
                self.assertNotIn(b'200', plain.recv(1000))
                self.assertEqual(self.health(server)['status'], 'ok')

    def test_a_new_certificate_is_taken_and_a_bad_one_is_not(self):
        with self.serve() as server:
            old = self.connect(server)
            old.request('GET', '/health')
            old.getresponse().read()
            self.assertEqual(self.name_of(server), 'first')
            make_certificate(self.folder.name, 'second')
            wait_until(lambda: self.name_of(server) == 'second')  # noticed without a signal
            old.request('GET', '/health')  # existing connections stay open
            self.assertEqual(old.getresponse().status, 200)
            good = pathlib.Path(self.cert).read_bytes()
            for bad in (b'', b'nonsense', good[:100]):
                pathlib.Path(self.cert).write_bytes(bad)
                said = len([line for line in server.log if 'old certificate stays' in line])
                server.process.send_signal(signal.SIGHUP)
                wait_until(lambda: len([line for line in server.log
                                        if 'old certificate stays' in line]) > said)
                self.assertEqual(self.name_of(server), 'second')
            with tempfile.TemporaryDirectory() as other:
                other_cert, _ = make_certificate(other, 'first')
                shutil.copy(other_cert, self.cert)
                server.process.send_signal(signal.SIGHUP)
                wait_until(lambda: any(f'{self.key}: is not the key of the certificate' in line
                                       for line in server.log))
                self.assertEqual(self.name_of(server), 'second')
            pathlib.Path(self.cert).write_bytes(good)
            make_certificate(self.folder.name, 'first')
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: self.name_of(server) == 'first')
            self.assertEqual(server.terminate(), 0)

    def test_a_bad_certificate_ends_the_start(self):
        with tempfile.TemporaryDirectory() as other:
            other_cert, _ = make_certificate(other, 'second')
            for cert, key, what in ((other_cert, self.key, '--tls-key'), (self.key, self.key, '--tls-cert'),
                                    (self.cert, '/dev/null', '--tls-key'),
                                    (self.cert + 'x', self.key, '--tls-cert')):
                result = support.tokamak('serve', support.model_path(), '--port', '0', '--tls-cert',
                                         cert, '--tls-key', key, check=False)
                self.assertEqual(result.returncode, 1)
                self.assertIn(what, result.stderr)


class Browsers(unittest.TestCase):
    def test_an_allowed_origin_may_ask(self):
        with tempfile.TemporaryDirectory() as folder, \
                Server('--api-key-file', keys_file(folder, 'secret'), '--cors-origin',
                       'https://page.example') as server:
            origin = b'Origin: https://page.example\r\n'
            status, head, _ = exchange(
                server.port, b'OPTIONS /v1/chat/completions HTTP/1.1\r\n' + HOST + origin +
                b'Access-Control-Request-Method: POST\r\n'
                b'Access-Control-Request-Headers: authorization,content-type\r\n\r\n')
            self.assertEqual(status, 204, head)
            self.assertIn('Access-Control-Allow-Origin: https://page.example\r\n', head)
            self.assertIn('Access-Control-Allow-Headers: authorization,content-type\r\n', head)
            request = POST + origin + b'KEY?Content-Length: 32\r\n\r\n' + BODY
            for key, expected in ((KEY, 200), (b'', 401)):
                status, head, _ = exchange(server.port, request.replace(b'KEY?', key))
                self.assertEqual(status, expected)
                self.assertIn('Access-Control-Allow-Origin: https://page.example\r\n', head)

    def test_any_origin_needs_a_key(self):
        result = support.tokamak('serve', support.model_path(), '--port', '0', '--cors-origin', '*',
                                 check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn('--api-key-file', result.stderr)


if __name__ == '__main__':
    support.main()
