"""A server between the browser and the real one. It forwards everything, but can replace the
model's answer, a path's answer, or the check of the key."""

import http.client
import http.server
import json
import threading
import time


class StandIn:
    """`answer(body)` returns the chunks of a chat completion, as texts or deltas; None asks the
    real server. `paths` maps paths to (status, JSON). `key`: the API key that calls need."""

    def __init__(self, port):
        self.answer = None
        self.paths = {}
        self.key = ''
        self.bodies = []  # parsed bodies of chat completions
        stand_in = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_GET(self):
                stand_in._handle(self, port)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self._server.daemon_threads = True
        self.url = f'http://127.0.0.1:{self._server.server_address[1]}'
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def _handle(self, handler, port):
        body = handler.rfile.read(int(handler.headers.get('Content-Length', 0)))
        page = handler.path == '/' or handler.path.startswith('/page/')
        if self.key and not page and handler.headers.get('Authorization') != f'Bearer {self.key}':
            return reply(handler, 401, {'error': {'message': 'missing or unknown API key'}})
        if handler.path in self.paths:
            return reply(handler, *self.paths[handler.path])
        if handler.path == '/v1/chat/completions':
            self.bodies.append(json.loads(body))
            if self.answer:
                return stream(handler, self.answer(self.bodies[-1]))
        connection = http.client.HTTPConnection('127.0.0.1', port)
        headers = {name: value for name, value in handler.headers.items()
                   if name.lower() not in ('host', 'connection', 'origin')}
        connection.request(handler.command, handler.path, body or None, headers)
        response = connection.getresponse()
        handler.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ('connection', 'transfer-encoding'):
                handler.send_header(name, value)
        if response.length is None:
            handler.send_header('Connection', 'close')
            handler.close_connection = True
        handler.end_headers()
        try:
            while part := response.read1(65536):
                handler.wfile.write(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the browser stopped it
        connection.close()


def reply(handler, status, value):
    content = json.dumps(value).encode()
    handler.send_response(status)
    handler.send_header('Content-Type', 'application/json')
    handler.send_header('Content-Length', str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def stream(handler, chunks):
    """Sends the chunks of an answer: texts or whole deltas. A number is a pause in seconds."""
    handler.send_response(200)
    handler.send_header('Content-Type', 'text/event-stream')
    handler.send_header('Connection', 'close')
    handler.end_headers()

    def event(choices, **more):
        data = json.dumps({'id': 'chatcmpl-1', 'object': 'chat.completion.chunk', 'created': 1,
                           'model': 'm', 'seed': 7, 'choices': choices, **more})
        handler.wfile.write(f'data: {data}\n\n'.encode())

    try:
        tokens = 0
        for chunk in chunks:
            if isinstance(chunk, (int, float)):
                time.sleep(chunk)
                continue
            delta = {'content': chunk} if isinstance(chunk, str) else chunk
            event([{'index': 0, 'delta': delta, 'finish_reason': None}])
            tokens += 1
        event([{'index': 0, 'delta': {}, 'finish_reason': 'stop'}])
        event([], usage={'prompt_tokens': 10, 'completion_tokens': tokens})
        handler.wfile.write(b'data: [DONE]\n\n')
    except (BrokenPipeError, ConnectionResetError):
        pass  # the browser stopped it
    handler.close_connection = True
