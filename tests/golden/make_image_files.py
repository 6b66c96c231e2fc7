#!/usr/bin/env python3
"""Writes small image files of every kind that we decode, and the pixels that Pillow gives for them.

    make_image_files.py [FOLDER]        default: tests/golden/images

NAME.jpg, NAME.png, NAME.webp and NAME.gif each get a NAME.EXT.ppm: the pixels after
ImageOps.exif_transpose and convert("RGB"); of 16 bits, always the upper 8. Made with Pillow 13.0.0 and NumPy 2.4.6.
"""
import io
import pathlib
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps

WIDTH, HEIGHT = 23, 17


def picture(mode, width=WIDTH, height=HEIGHT):
    """A picture with gradients, an edge and some noise, that has no symmetry."""
    y, x = np.mgrid[0:height, 0:width]
    noise = np.random.default_rng(30).integers(0, 60, (height, width, 4))
    red, green = x * 200 // width, y * 200 // height
    channels = np.stack([red, green, np.where(x > 2 * y, 180, 20), (red + green) // 2], -1)
    pixels = (channels + noise).clip(0, 255).astype(np.uint8)
    if mode == 'L':
        return Image.fromarray(pixels[..., 0])
    if mode == 'LA':
        return Image.merge('LA', [Image.fromarray(pixels[..., i]) for i in (0, 3)])
    if mode == 'CMYK':
        return Image.frombytes('CMYK', (width, height), pixels.tobytes())
    return Image.fromarray(pixels[..., :len(mode)])


def encode(image, format, **options):
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def exif(orientation, big_endian=False):
    order, mark = ('>', b'MM') if big_endian else ('<', b'II')
    entries = struct.pack(order + 'HHIHH', 0x0100, 3, 1, 9, 0)
    entries += struct.pack(order + 'HHIHH', 0x0112, 3, 1, orientation, 0)
    return b'Exif\0\0' + mark + struct.pack(order + 'HIH', 42, 8, 2) + entries + bytes(4)


def chunk(name, data):
    return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))


def png(color, depth, samples, interlaced=False, extra=b'', late=b''):
    """A PNG file. samples: [height, width, channels]. Pillow writes neither Adam7 nor 16-bit RGB."""
    height, width, _ = samples.shape
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
              (0, 1, 1, 2)] if interlaced else [(0, 0, 1, 1)]
    rows = b''
    for x, y, step_x, step_y in passes:
        for row in samples[y::step_y, x::step_x]:
            values = row.reshape(-1)
            if depth == 16:
                packed = values.astype('>u2').tobytes()
            else:
                bits = np.unpackbits(values.astype(np.uint8)[:, None], axis=1)[:, 8 - depth:]
                packed = np.packbits(bits.reshape(-1)).tobytes()
            if row.size:
                rows += b'\0' + packed
    header = struct.pack('>IIBBBBB', width, height, depth, color, 0, 0, int(interlaced))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + extra + chunk(b'IDAT', zlib.compress(rows))
            + late + chunk(b'IEND', b''))


def jpegs():
    for orientation in range(1, 9):
        yield f'orientation_{orientation}', encode(
            picture('RGB'), 'JPEG', quality=90, exif=exif(orientation, orientation % 2 == 0))
    yield 'orientation_9', encode(picture('RGB'), 'JPEG', exif=exif(9))
    yield 'subsampled', encode(picture('RGB', 50, 35), 'JPEG', quality=70, subsampling='4:2:0')
    yield 'halved', encode(picture('RGB', 50, 35), 'JPEG', quality=70, subsampling='4:2:2')
    yield 'progressive', encode(picture('RGB', 50, 35), 'JPEG', quality=85, progressive=True)
    yield 'restarts', encode(picture('RGB', 50, 35), 'JPEG', restart_marker_blocks=2)
    yield 'gray', encode(picture('L'), 'JPEG', quality=90)
    yield 'stored_rgb', encode(picture('RGB'), 'JPEG', quality=95, keep_rgb=True)
    cmyk = encode(picture('CMYK'), 'JPEG', quality=95)
    yield 'cmyk', cmyk
    # The same data, declared as YCCK.
    adobe = cmyk.index(b'Adobe')
    yield 'ycck', cmyk[:adobe + 11] + b'\2' + cmyk[adobe + 12:]


def pngs():
    rng = np.random.default_rng(31)
    rgb = np.asarray(picture('RGB'))
    for mode in ('L', 'LA', 'RGB', 'RGBA'):
        yield mode.lower(), encode(picture(mode), 'PNG')
    for depth in (1, 2, 4):
        samples = rng.integers(0, 1 << depth, (HEIGHT, WIDTH, 1))
        yield f'gray_{depth}_bits', png(0, depth, samples)
        palette = rng.integers(0, 256, 3 << depth, dtype=np.uint8).tobytes()
        yield f'palette_{depth}_bits', png(3, depth, samples, extra=chunk(b'PLTE', palette))
    yield 'palette', encode(picture('RGB').quantize(200), 'PNG')
    yield 'palette_transparent', encode(picture('RGB').quantize(60), 'PNG',
                                        transparency=bytes(range(60)))
    yield 'rgb_transparent', encode(picture('RGB'), 'PNG', transparency=tuple(map(int, rgb[3, 4])))
    yield 'gray_transparent', encode(picture('L'), 'PNG', transparency=100)
    for name, color, channels in (('gray', 0, 1), ('rgb', 2, 3), ('gray_alpha', 4, 2),
                                  ('rgba', 6, 4)):
        wide = rng.integers(0, 1 << 16, (HEIGHT, WIDTH, channels))
        yield f'{name}_16_bits', png(color, 16, wide)
        narrow = rng.integers(0, 256, (HEIGHT, WIDTH, channels))
        yield f'{name}_interlaced', png(color, 8, narrow, interlaced=True)
    yield 'interlaced_3x2', png(2, 8, rgb[:2, :3], interlaced=True)
    yield 'one_pixel', png(2, 8, rgb[:1, :1])
    yield 'gamma', png(2, 8, rgb, extra=chunk(b'gAMA', struct.pack('>I', 100000)))
    yield 'orientation_6', png(2, 8, rgb, extra=chunk(b'eXIf', exif(6)[6:]))
    yield 'orientation_late', png(2, 8, rgb, late=chunk(b'eXIf', exif(8)[6:]))


def webps():
    yield 'lossy', encode(picture('RGB', 50, 35), 'WEBP', quality=60)
    yield 'lossless', encode(picture('RGB'), 'WEBP', lossless=True)
    yield 'alpha', encode(picture('RGBA'), 'WEBP', quality=80)
    yield 'alpha_lossless', encode(picture('RGBA'), 'WEBP', lossless=True, exact=True)
    yield 'orientation_7', encode(picture('RGB'), 'WEBP', lossless=True, exif=exif(7))
    frames = [ImageOps.mirror(picture('RGB')), picture('RGB')]
    animated = encode(frames[1], 'WEBP', lossless=True, save_all=True, append_images=frames[:1])
    yield 'animated', animated
    # A larger canvas, and the first frame 4 pixels right of and 6 below its corner.
    canvas = animated[:24] + struct.pack('<HBHB', WIDTH + 8, 0, HEIGHT + 7, 0)
    frame = animated.index(b'ANMF') + 8
    yield 'smaller', canvas + animated[30:frame] + bytes([2, 0, 0, 3, 0, 0]) + animated[frame + 6:]


def gifs():
    indexed = picture('RGB').quantize(40)
    plain = encode(indexed, 'GIF', interlace=0)
    yield 'plain', plain
    yield 'interlaced', encode(indexed, 'GIF', interlace=1)
    yield 'gray', encode(picture('L'), 'GIF')
    yield 'transparent', encode(indexed, 'GIF', transparency=7)
    yield 'animated', encode(indexed, 'GIF', save_all=True,
                             append_images=[ImageOps.mirror(picture('RGB')).quantize(40)])
    for name, file in (('smaller', plain), ('smaller_transparent',
                                            encode(indexed, 'GIF', transparency=7, interlace=0))):
        frame = file.index(b',\0\0\0\0' + struct.pack('<HH', WIDTH, HEIGHT))
        canvas = file[:6] + struct.pack('<HH', WIDTH + 9, HEIGHT + 5) + file[10:frame + 1]
        yield name, canvas + struct.pack('<HH', 4, 3) + file[frame + 5:]
    yield 'larger', plain[:6] + struct.pack('<HH', 5, 40) + plain[10:]


def main():
    folder = pathlib.Path(__file__).parent / 'images'
    if len(sys.argv) > 1:
        folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for extension, files in (('jpg', jpegs()), ('png', pngs()), ('webp', webps()),
                             ('gif', gifs())):
        for name, file in files:
            (folder / f'{name}.{extension}').write_bytes(file)
            with Image.open(io.BytesIO(file)) as image:
                if image.mode == 'I;16':  # convert() would clip all above 255
                    image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
                upright = ImageOps.exif_transpose(image).convert('RGB')
            upright.save(folder / f'{name}.{extension}.ppm')


if __name__ == '__main__':
    main()
