"""Hostile images, for attack.py: what each costs, and what it does to others."""

import base64
import json
import random
import struct
import tempfile
import threading
import zlib

import image_model
import support

MODEL = 'llava_odd'
MAX_PIXELS = 1_000_000
# Decoding takes up to 14 bytes per pixel. The rest is for the prepared images, bodies and the heap.
MAX_GROWTH_MB = 14 * MAX_PIXELS / 2**20 + 100


def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))


def png(width, height, rows=None, *chunks, depth=8, color=2):
    """A PNG that says it has this size. `rows`: what is compressed; None: black pixels."""
    if rows is None:
        rows = (b'\0' + b'\0' * (3 * width)) * height
    head = chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, depth, color, 0, 0, 0))
    return (b'\x89PNG\r\n\x1a\n' + head + b''.join(chunks) + chunk(b'IDAT', zlib.compress(rows, 9)) +
            chunk(b'IEND', b''))


def jpeg(width, height):
    """The head of `rgb.jpg`'s kind with another size, and none of its pixels."""
    data = bytearray(image_model.picture('restarts.jpg').read_bytes())
    at = data.index(b'\xff\xc0')
    data[at + 5:at + 9] = struct.pack('>HH', height, width)
    return bytes(data)


def gif(width, height, frames=1):
    head = b'GIF89a' + struct.pack('<HHBBB', width, height, 0x80, 0, 0) + b'\0\0\0\xff\xff\xff'
    frame = b',' + struct.pack('<HHHHB', 0, 0, width, height, 0) + b'\x02\x02\x44\x01\0'
    return head + frame * frames + b';'


def webp(width, height):
    """An extended WebP whose canvas says this size, around the frame of a smaller image."""
    frame = image_model.picture('lossy.webp').read_bytes()[12:]
    canvas = struct.pack('<I', 0) + struct.pack('<I', width - 1)[:3] + struct.pack('<I', height - 1)[:3]
    body = b'WEBP' + b'VP8X' + struct.pack('<I', len(canvas)) + canvas + frame
    return b'RIFF' + struct.pack('<I', len(body)) + body


def stamped(name, *marks):
    """A picture with some bytes changed: (position, bytes)."""
    data = bytearray(image_model.picture(name).read_bytes())
    for at, new in marks:
        data[at:at + len(new)] = new
    return bytes(data)


def scans(count):
    """A progressive JPEG with its last scan repeated."""
    data = image_model.picture('progressive.jpg').read_bytes()
    last = data.rindex(b'\xff\xda')
    return data[:last] + data[last:-2] * count + data[-2:]


FINE = 'fine'  # the image is small enough to be decoded
BAD = 'bad'
ANY = 'any'    # decoders may go either way


def bombs():
    """(name, the file, what must become of it)."""
    zeros = bytes(64 << 20)
    yield 'a PNG of 10^9 pixels', png(16000, 62500, b''), BAD
    yield 'a PNG of 2^31 x 2^31 pixels', png(2**31 - 1, 2**31 - 1, b''), BAD
    yield 'a PNG of 0 x 0 pixels', png(0, 0, b''), BAD
    yield 'a PNG just above the limit', png(1001, 1000), BAD
    yield 'a PNG at the limit', png(1000, 1000), FINE
    yield 'a PNG without pixels', png(900, 900, b''), BAD
    yield 'a PNG whose pixels go on for 64 MiB', png(10, 10, zeros), ANY
    yield 'a PNG with a 64 MiB comment', png(
        10, 10, None, chunk(b'zTXt', b'a\0\0' + zlib.compress(zeros, 9))), ANY
    yield 'a PNG with a 64 MiB profile', png(
        10, 10, None, chunk(b'iCCP', b'a\0\0' + zlib.compress(zeros, 9))), ANY
    yield 'a PNG of 20,000 chunks', png(10, 10, None, chunk(b'tEXt', b'a\0b') * 20000), ANY
    yield 'a PNG with a palette that is missing', png(10, 10, bytes(110), color=3), BAD
    yield 'a PNG of a color type that there is not', png(10, 10, None, color=5), BAD
    yield 'a JPEG of 65535 x 65535 pixels', jpeg(65535, 65535), BAD
    yield 'a JPEG of 999 x 999 pixels without them', jpeg(999, 999), BAD
    yield 'a JPEG of 0 lines', jpeg(23, 0), BAD
    yield 'a JPEG of 2,000 scans', scans(2000), BAD
    yield 'a GIF of 65535 x 65535 pixels', gif(65535, 65535), BAD
    yield 'a GIF of 100,000 frames', gif(2, 2, 100_000), ANY
    yield 'a WebP of 16384 x 16384 pixels', webp(16384, 16384), BAD
    yield 'a WebP whose canvas is not its frame', webp(900, 900), ANY
    yield '1 x 1', png(1, 1), FINE
    yield '1 x 30000', png(1, 30000), BAD
    yield '30000 x 1', png(30000, 1), BAD
    yield '1 x 16384', png(1, 16384), ANY  # scaling it to the tower's width may be too much
    yield '16384 x 1', png(16384, 1), ANY
    yield 'nothing', b'', BAD
    yield 'zeros', bytes(1000), BAD
    yield 'SVG', b'<svg xmlns="http://www.w3.org/2000/svg"/>', BAD
    yield 'PDF', b'%PDF-1.7', BAD
    for name in ('rgb.png', 'restarts.jpg', 'progressive.jpg', 'lossy.webp', 'lossless.webp', 'plain.gif'):
        whole = image_model.picture(name).read_bytes()
        for part in (8, 2, 4 / 3):
            yield f'{name}, its first {1 / part:.2f}', whole[:int(len(whole) / part)], BAD


def damaged(generator, names):
    """A picture with a few bytes changed, cut, or doubled."""
    data = bytearray(image_model.picture(generator.choice(names)).read_bytes())
    for _ in range(generator.randint(1, 8)):
        at = generator.randrange(len(data))
        kind = generator.random()
        if kind < 0.7:
            data[at] = generator.choice([0, 1, 0x7f, 0x80, 0xff, generator.randrange(256)])
        elif kind < 0.85:
            del data[at:at + generator.randint(1, 40)]
        else:
            data[at:at] = data[at:at + generator.randint(1, 40)]
        data = data or bytearray(b'\0')
    return bytes(data)


def body_of(files, **options):
    parts = [{'type': 'text', 'text': '[5][6]'}]
    for data in files:
        url = 'data:image/png;base64,' + base64.b64encode(data).decode()
        parts.append({'type': 'image_url', 'image_url': {'url': url}})
    return {'messages': [{'role': 'user', 'content': parts}], 'max_tokens': 4, 'temperature': 0,
            'ignore_eos': True, **options}


def answer_of(server, body):
    status, answer = server.request('/v1/chat/completions', body)
    return status, answer['choices'][0]['message']['content'] if status == 200 else answer


class GoodViewer(threading.Thread):
    """Sends the same image again and again, whose answer must stay the same."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.stopped, self.answers = server, False, 0
        self.body = body_of([image_model.picture('rgb.png').read_bytes()], max_tokens=8)
        self.expected = answer_of(server, self.body)
        self.failures = [] if self.expected[0] == 200 else [f'good image: {self.expected}']

    def run(self):
        while not self.stopped:
            answer = answer_of(self.server, self.body)
            self.answers += 1
            if answer != self.expected:
                self.failures.append(f'the answer to a good image changed: {answer}')

    def stop(self):
        self.stopped = True
        self.join()


def peak_mb(server):
    """The most memory that the server has had."""
    with open(f'/proc/{server.process.pid}/status') as status:
        return next(int(line.split()[1]) for line in status if line.startswith('VmHWM:')) / 1024


def check(server, name, files, expected, failures):
    status, answer = answer_of(server, body_of(files))
    if status not in {FINE: (200,), BAD: (400,), ANY: (200, 400)}[expected]:
        failures.append(f'{name}: {status} {str(answer)[:200]}')
    if status == 400:
        error = answer['error']
        if error['param'] != f'messages[0].content[{len(files)}].image_url.url' or not error['message']:
            failures.append(f'{name}: {error}')
    return status


def attack(options, server, failures):
    viewer = GoodViewer(server)
    before = peak_mb(server)
    viewer.start()
    small = image_model.picture('one_pixel.png').read_bytes()
    refused = total = 0
    for name, data, expected in bombs():
        refused += check(server, name, [data], expected, failures) == 400
        # Behind others, which were decoded before.
        check(server, f'{name} as the third', [small, small, data], expected, failures)
        total += 1
    grown = peak_mb(server) - before
    generator = random.Random(options.seed)
    names = [path.name for path in image_model.GOLDENS.joinpath('images').iterdir()
             if path.suffix != '.ppm']
    fine = sum(check(server, f'damaged image {i} of seed {options.seed}', [damaged(generator, names)],
                     ANY, failures) == 200 for i in range(options.count))
    viewer.stop()
    failures += viewer.failures
    if grown > MAX_GROWTH_MB:
        failures.append(f'memory grew by {grown:.0f} MB, more than {MAX_GROWTH_MB:.0f} MB')
    if viewer.answers == 0:
        failures.append('nobody else was served')
    server.wait_until(lambda h: h['running'] == 0, 'nothing runs')
    return (f'{total} bombs, {refused} of them refused, with {grown:.0f} MB of memory more at most; '
            f'{options.count} damaged images, {fine} of them fine; {viewer.answers} answers to somebody '
            'else, all the same')


# What a file could say of how images are prepared, and the field that the error must name.
BAD_SETTINGS = [
    ('image_mean', [float('nan'), 0.5, 0.5]), ('image_mean', [1e400, 0.5, 0.5]),
    ('image_mean', [0.5]), ('image_mean', 'a'), ('image_std', [float('nan'), 1, 1]),
    ('image_std', [0, 1, 1]), ('image_std', [float('inf'), 1, 1]), ('image_std', [1e-45, 1, 1]),
    ('rescale_factor', float('nan')), ('rescale_factor', -float('inf')), ('rescale_factor', 1e400),
    ('rescale_factor', {}), ('size', {'shortest_edge': -1}), ('size', {'shortest_edge': 0}),
    ('size', {'shortest_edge': 10**9}), ('size', {'shortest_edge': 10**30}),
    ('size', {'shortest_edge': float('nan')}), ('size', []), ('crop_size', {'height': -1, 'width': 22}),
    ('crop_size', {'height': 10**9, 'width': 10**9}), ('resample', 99), ('resample', float('nan'))]


def bad_settings(failures):
    """Models with such settings do not load, and say why."""
    golden = json.loads((image_model.GOLDENS / 'hf' / MODEL / 'preprocessor_config.json').read_text())
    for field, value in BAD_SETTINGS:
        with tempfile.TemporaryDirectory(prefix='tokamak-images-') as folder:
            image_model.write(folder, MODEL, processor=False)
            with open(f'{folder}/preprocessor_config.json', 'w') as file:
                json.dump({**golden, field: value}, file)  # writes NaN and Infinity, as Python does
            done = support.tokamak('run', folder, '--prompt', '[5]', '--max-tokens', '1', check=False)
        if done.returncode != 1 or 'preprocessor_config.json' not in done.stderr:
            failures.append(f'{field} {value}: exit code {done.returncode}, {done.stderr[:300]}')
    return f'{len(BAD_SETTINGS)} bad settings'


def images(options, failures):
    with tempfile.TemporaryDirectory(prefix='tokamak-images-') as folder:
        image_model.write(folder, MODEL)
        with support.Server('--max-image-pixels', str(MAX_PIXELS), model=folder) as server:
            summary = attack(options, server, failures)
            if server.terminate() != 0:
                failures.append('the server did not exit with 0')
    return f'{summary}; {bad_settings(failures)}'
