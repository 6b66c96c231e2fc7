#!/usr/bin/env python3
"""Resizes images with torchvision: tests/golden/resized/SOURCE_FILTER_WIDTHxHEIGHT.ppm.

SOURCE.ppm in that folder is the input. Made with torch 2.15.0, torchvision 0.29.2 and NumPy 2.4.6, on a
CPU with AVX2 (torchvision computes bilinear results in floating point where there is none).
"""
import pathlib

import numpy as np
import torch
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional

FOLDER = pathlib.Path(__file__).parent / 'resized'
FILTERS = {'bilinear': InterpolationMode.BILINEAR, 'bicubic': InterpolationMode.BICUBIC}


def write(name, image):
    """image: uint8 [3, height, width]."""
    height, width = image.shape[1:]
    pixels = image.permute(1, 2, 0).contiguous().numpy().tobytes()
    (FOLDER / f'{name}.ppm').write_bytes(b'P6\n%d %d\n255\n' % (width, height) + pixels)


def main():
    FOLDER.mkdir(exist_ok=True)
    rng = np.random.default_rng(32)
    y, x = np.mgrid[0:35, 0:50]
    smooth = np.stack([x * 5, y * 7, 128 + 100 * np.sin(x * y / 40)]).astype(np.uint8)
    sources = {
        # Noise makes the bicubic filter exceed 0 and 255.
        'noise': (rng.integers(0, 2, (3, 21, 34)) * 255,
                  [(34, 20), (9, 21), (11, 30), (60, 7), (47, 45), (1, 3), (2, 64)]),
        'smooth': (smooth, [(20, 30), (61, 47), (49, 36), (3, 2)]),
        'narrow': (rng.integers(0, 256, (3, 700, 2)), [(5, 9), (2, 3)]),
        'pixel': (rng.integers(0, 256, (3, 1, 1)), [(4, 3)]),
    }
    for source, (values, sizes) in sources.items():
        image = torch.from_numpy(values.astype(np.uint8))
        write(source, image)
        for name, interpolation in FILTERS.items():
            for width, height in sizes:
                resized = functional.resize(image, [height, width], interpolation=interpolation,
                                            antialias=True)
                write(f'{source}_{name}_{width}x{height}', resized)


if __name__ == '__main__':
    main()
