#!/usr/bin/env python3
"""Runs the image processors of transformers on small images: tests/golden/image_processors/.

cases.json has a list of {"config", "images": [{"file", "shape", "grid"}]}, with "outer" if the fields
of processor_config.json count; files are in tests/golden/resized. values.bin has the pixel values of
all of them in that order, as float32. kwargs.json and kwargs.bin are the same for calls with "kwargs".
tiles.json and tiles.bin are the same for MiniCPM-V, with the grids of tiles and of a tile's patches.
sizes.json has grids that the processors choose for images of many sizes, and what LLaVA-NeXT keeps of
grids of features. Made with transformers 5.23.0, torch 2.15.0, torchvision 0.29.2, NumPy 2.4.6.
"""
import json
import pathlib
import warnings

import numpy as np
import torch
import transformers
from transformers.models.llava_next.modeling_llava_next import unpad_image
from transformers.models.glm4v.image_processing_glm4v import smart_resize as smart_resize_glm
from transformers.models.pixtral.image_processing_pixtral import get_resize_output_image_size
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / 'image_processors'
IMAGES = ['smooth', 'noise', 'noise_bicubic_9x21', 'noise_bilinear_60x7', 'pixel']
PINPOINTS = [[14, 28], [28, 14], [28, 28], [42, 14], [14, 42]]
CLIP = {'image_processor_type': 'CLIPImageProcessor'}
LLAVA = {'image_processor_type': 'LlavaImageProcessor', 'size': {'shortest_edge': 15},
         'crop_size': {'height': 15, 'width': 15}}
NEXT = {'image_processor_type': 'LlavaNextImageProcessor', 'image_grid_pinpoints': PINPOINTS,
        'size': {'shortest_edge': 14}, 'crop_size': {'height': 14, 'width': 14}}
QWEN = {'image_processor_type': 'Qwen2VLImageProcessor', 'patch_size': 4, 'min_pixels': 600,
        'max_pixels': 1800}
GLM = {'image_processor_type': 'Glm4vImageProcessor', 'patch_size': 4, 'merge_size': 2, 'temporal_patch_size': 2,
       'size': {'shortest_edge': 600, 'longest_edge': 1800}}
GEMMA = {'image_processor_type': 'Gemma3ImageProcessor'}

CONFIGS = [
    # As llava-hf/llava-1.5-7b-hf has it, but smaller.
    CLIP | {'crop_size': {'height': 14, 'width': 14}, 'do_center_crop': True, 'do_convert_rgb': True,
            'do_normalize': True, 'do_rescale': True, 'do_resize': True,
            'image_mean': [0.48145466, 0.4578275, 0.40821073],
            'image_std': [0.26862954, 0.26130258, 0.27577711], 'processor_class': 'LlavaProcessor',
            'resample': 3, 'rescale_factor': 0.00392156862745098, 'size': {'shortest_edge': 14}},
    CLIP | {'size': 12, 'crop_size': 15, 'resample': 2, 'do_convert_rgb': None},
    CLIP | {'size': {'height': 9, 'width': 16}, 'crop_size': {'height': 12, 'width': 11},
            'image_mean': [0.1, 0.2, 0.3], 'image_std': [0.5, 0.6, 0.7], 'rescale_factor': 0.01},
    CLIP | {'do_resize': False, 'do_normalize': False, 'crop_size': 13},
    CLIP | {'size': 11, 'do_center_crop': False, 'do_rescale': False},
    LLAVA | {'do_pad': True},
    LLAVA | {'do_pad': True, 'size': {'height': 15, 'width': 15}, 'do_center_crop': False,
             'image_mean': [0.5, 0.25, 0.9]},
    {'image_processor_type': 'SiglipImageProcessor', 'size': {'height': 12, 'width': 16}},
    {'image_processor_type': 'SiglipImageProcessor', 'size': {'height': 12, 'width': 12},
     'resample': 2, 'image_mean': [0.5, 0.5, 0.5], 'image_std': [0.5, 0.5, 0.5]},
    NEXT,
    NEXT | {'size': {'shortest_edge': 16}, 'resample': 2},
    NEXT | {'size': {'height': 12, 'width': 10}, 'do_center_crop': False},
    QWEN,
    {key: value for key, value in QWEN.items() if not key.endswith('pixels')} |
    {'size': {'shortest_edge': 150, 'longest_edge': 500}, 'patch_size': 3, 'merge_size': 1,
     'temporal_patch_size': 1, 'do_rescale': True},
    GLM,
    GLM | {'image_processor_type': 'Glm46VImageProcessor', 'size': {'shortest_edge': 900, 'longest_edge': 1500}, 'patch_size': 3, 'temporal_patch_size': 3,
           'resample': 2},
    # As google/gemma-3-4b-it has it, but smaller.
    GEMMA | {'do_convert_rgb': None, 'do_normalize': True, 'do_pan_and_scan': None, 'do_rescale': True,
             'do_resize': True, 'image_mean': [0.5, 0.5, 0.5], 'image_seq_length': 256,
             'image_std': [0.5, 0.5, 0.5], 'pan_and_scan_max_num_crops': None,
             'pan_and_scan_min_crop_size': None, 'pan_and_scan_min_ratio_to_activate': None,
             'processor_class': 'Gemma3Processor', 'resample': 2, 'rescale_factor': 0.00392156862745098,
             'size': {'height': 12, 'width': 12}},
    GEMMA | {'size': {'height': 9, 'width': 14}, 'do_pan_and_scan': False,
             'pan_and_scan_max_num_crops': 4},
]
PIXTRAL = {'image_processor_type': 'PixtralImageProcessor'}
# With their processor_config.json.
PAIRS = [
    # As published.
    (PIXTRAL | {'do_convert_rgb': True, 'do_normalize': True, 'do_rescale': True, 'do_resize': True,
                'image_mean': [0.48145466, 0.4578275, 0.40821073], 'patch_size': 5,
                'image_std': [0.26862954, 0.26130258, 0.27577711], 'processor_class': 'PixtralProcessor',
                'resample': 3, 'rescale_factor': 0.00392156862745098, 'size': {'longest_edge': 30}},
     {'image_break_token': '[IMG_BREAK]', 'image_end_token': '[IMG_END]', 'image_token': '[IMG]',
      'patch_size': 5, 'processor_class': 'PixtralProcessor', 'spatial_merge_size': 2}),
    (PIXTRAL | {'size': {'height': 17, 'width': 40}, 'resample': 2, 'do_pad': True,
                'patch_size': {'height': 9, 'width': 9}}, {'patch_size': 4}),
    (PIXTRAL, {}),
]
STILL = QWEN | {'temporal_patch_size': 1}
# Arguments of the call, of which vLLM's mm_processor_kwargs are made.
KWARGS = [
    (STILL, {'max_pixels': 650}),
    (STILL, {'min_pixels': 800}),
    (STILL, {'min_pixels': 100, 'max_pixels': 300}),
    (STILL, {'size': {'shortest_edge': 100, 'longest_edge': 300}}),
    (STILL, {'size': {'shortest_edge': 1, 'longest_edge': 2000}, 'max_pixels': 200}),
    (GLM, {'size': {'shortest_edge': 300, 'longest_edge': 700}}),
]


MINICPM = {'image_processor_type': 'MiniCPMV4_6ImageProcessor'}
TILES = [
    # With all fields, as transformers saves them.
    MINICPM | {'do_convert_rgb': True, 'do_normalize': True, 'do_rescale': True, 'do_resize': True,
               'downsample_mode': '16x', 'image_mean': [0.5, 0.5, 0.5], 'image_std': [0.5, 0.5, 0.5], 'max_slice_nums': 6,
               'patch_size': 2, 'processor_class': 'MiniCPMV4_6Processor', 'resample': 3,
               'rescale_factor': 0.00392156862745098, 'scale_resolution': 13, 'slice_mode': True, 'use_image_id': True},
    MINICPM | {'downsample_mode': '4x', 'patch_size': 3, 'scale_resolution': 20, 'max_slice_nums': 4, 'resample': 2,
               'image_mean': [0.1, 0.2, 0.3], 'use_image_id': False},
    MINICPM | {'patch_size': 2, 'scale_resolution': 13, 'slice_mode': False},
]


def read(name):
    file = (HERE / 'resized' / f'{name}.ppm').read_bytes()
    width, height = map(int, file[3:file.index(b'\n', 3)].split())
    return np.frombuffer(file[-3 * width * height:], np.uint8).reshape(height, width, 3)


def processor(config):
    # from_dict gives the classes of preprocessor_config.json their fields.
    return getattr(transformers, config['image_processor_type']).from_dict(dict(config))


def unit(outer):
    return outer.get('patch_size', 16) * outer.get('spatial_merge_size', 1)


def run(config, outer, image, kwargs):
    """Returns the pixel values of one image, uint8 [height, width, 3], and its grid."""
    more = {} if outer is None else {'patch_size': unit(outer)}  # as PixtralProcessor does
    batch = processor(config)(torch.from_numpy(image.copy()).permute(2, 0, 1),
                              return_tensors='pt', input_data_format='channels_first', **more, **kwargs)
    values = batch['pixel_values']
    if outer is not None:
        return values, [side // unit(outer) for side in values.shape[2:]]
    if 'image_grid_thw' in batch:
        patch = config['patch_size']
        _, rows, columns = batch['image_grid_thw'][0].tolist()
        return values.reshape(rows * columns, 3, -1, patch, patch), [rows, columns]
    if 'image_sizes' in batch:
        height, width = image.shape[:2]
        best = transformers.image_processing_utils.select_best_resolution((height, width), PINPOINTS)
        return values[0], [best[0] // 14, best[1] // 14]
    return values, [0, 0]


def unpadded(height, width, rows, columns):
    grid = torch.arange(rows * columns).reshape(1, rows, columns)
    kept = unpad_image(grid, (height, width))[0]
    first = kept.storage_offset()  # also if nothing is kept
    return [first // columns, first % columns, *kept.shape]


def main():
    warnings.simplefilter('ignore')
    FOLDER.mkdir(exist_ok=True)
    configs = [(config, None) for config in CONFIGS] + PAIRS
    write_cases('cases.json', 'values.bin', [(*pair, {}) for pair in configs], IMAGES)
    write_cases('kwargs.json', 'kwargs.bin', [(config, None, kwargs) for config, kwargs in KWARGS], IMAGES[3:])
    write_tiles()
    write_sizes()


def in_tiles(config, image):
    """What becomes of an image for MiniCPM-V: the grids, and the values of the image and its tiles."""
    batch = processor(config)(torch.from_numpy(image.copy()).permute(2, 0, 1), return_tensors='pt',
                              input_data_format='channels_first')
    patch, sizes = batch['pixel_values'].shape[2], batch['target_sizes'].tolist()
    assert all(size == sizes[1] for size in sizes[1:])
    patches = batch['pixel_values'][0].unflatten(2, (-1, patch)).permute(2, 0, 1, 3)
    return dict(grid=sizes[0], tiles=list(batch['grids'][0]), tile=(sizes + [[0, 0]])[1]), patches


def write_tiles():
    cases, values = [], []
    for config in TILES:
        images = []
        for name in IMAGES[1:]:
            grids, patches = in_tiles(config, read(name))
            images.append({'file': name} | grids)
            values.append(patches.contiguous().numpy().astype('<f4').tobytes())
        cases.append({'config': config, 'images': images})
    rng, sizes = np.random.default_rng(34), []
    sides = [int(2 ** side) for side in rng.uniform(0, 8, 160)]
    for height, width in zip(sides[::2], sides[1::2]):
        config = TILES[len(sizes) % 2]
        if max(height, width) <= 30 * min(height, width):
            grids, _ = in_tiles(config, np.zeros((height, width, 3), np.uint8))
            sizes.append([len(sizes) % 2, height, width] + grids['grid'] + grids['tiles'] + grids['tile'])
    lines = ',\n'.join(json.dumps(line) for line in cases)
    more = ',\n'.join(json.dumps(line) for line in sizes)
    (FOLDER / 'tiles.json').write_text(f'{{"cases": [\n{lines}],\n"sizes": [\n{more}]}}\n')
    (FOLDER / 'tiles.bin').write_bytes(b''.join(values))


def write_cases(cases_file, values_file, calls, names):
    cases, values = [], []
    for config, outer, kwargs in calls:
        images = []
        for name in names:
            prepared, grid = run(config, outer, read(name), kwargs)
            images.append({'file': name, 'shape': list(prepared.shape), 'grid': grid})
            values.append(prepared.to(torch.float32).numpy().astype('<f4').tobytes())
        more = {'outer': outer, 'kwargs': kwargs or None}
        cases.append({'config': config, 'images': images} | {k: v for k, v in more.items() if v is not None})
    (FOLDER / cases_file).write_text(''.join(
        f'{"," if i else "["}\n{json.dumps(case)}' for i, case in enumerate(cases)) + '\n]\n')
    (FOLDER / values_file).write_bytes(b''.join(values))


def write_sizes():
    rng = np.random.default_rng(33)
    grids, regions = [], []
    sides = [int(2 ** side) for side in rng.uniform(0, 9, 120)]
    for height, width in zip(sides[::2], sides[1::2]):
        if max(height, width) <= 200 * min(height, width):
            to_height, to_width = smart_resize(height, width, 8, 600, 1800)
            grids.append([QWEN['image_processor_type'], height, width, to_height // 4, to_width // 4])
            to_height, to_width = smart_resize_glm(2, height, width, 2, 8, 600, 1800)
            grids.append([GLM['image_processor_type'], height, width, to_height // 4, to_width // 4])
        scaled = get_resize_output_image_size(torch.empty(3, height, width), 60, 8, "channels_first")
        if min(scaled) > 0:
            grids.append([PIXTRAL['image_processor_type'], height, width, scaled[0] // 8, scaled[1] // 8])
        best = transformers.image_processing_utils.select_best_resolution((height, width), PINPOINTS)
        grids.append([NEXT['image_processor_type'], height, width, best[0] // 14, best[1] // 14])
        for rows, columns in ((24, 48), (72, 24), (54, 54)):
            regions.append([height, width, rows, columns, *unpadded(height, width, rows, columns)])
    lines = ',\n'.join(json.dumps(line) for line in grids)
    more = ',\n'.join(json.dumps(line) for line in regions)
    (FOLDER / 'sizes.json').write_text(f'{{"grids": [\n{lines}],\n"unpadded": [\n{more}]}}\n')


if __name__ == '__main__':
    main()
