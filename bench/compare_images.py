#!/usr/bin/env python3
"""Images per second, and the time to the first token after one, of tokamak, transformers and llama-server,
on the same cores.

  bench/compare_images.py [--models llava,qwen2_5_vl] [--images 8] [--concurrency 1,4] [--runs 5]
                          [--cpus 0-1] [--torch-types float32,bfloat16] [--keep FOLDER]
                          [--llama LLAMA_CPP --llama-server FILE]

Needs a Python with torch, transformers and PIL; with --llama also gguf. LLAMA_CPP is the source of llama.cpp,
whose script converts the models. The models have random bf16 weights, a tower of the published size (CLIP
ViT-L/14 at 336 pixels, as in LLaVA 1.5, or Qwen2.5-VL's) and a small text model. Every request shows another
JPEG of 640 x 480 pixels and wants one token. Servers get it over HTTP; transformers runs in this process, from
the file's bytes on, and takes as many images in a batch as servers get at a time. The engines take turns.
Each peer has two types, and the better one counts. Prints a JSON object per model and concurrency, with medians of
the runs.
"""
import argparse
import base64
import concurrent.futures
import contextlib
import io
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np
import PIL.Image
import tokenizers
import torch
import transformers

import make_dummy_checkpoint
from compare_chats import say, serving

ROOT = pathlib.Path(__file__).resolve().parents[1]
TEXT = dict(hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=8,
            num_key_value_heads=8, bos_token_id=None, eos_token_id=None, max_position_embeddings=8192)
VOCABULARY = 4096  # and special tokens
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
MODELS = {
    'llava': dict(
        family='Llava', image='<image>', pre='gpt-2', tokens=dict(image_token_index='<image>'),
        text=dict(model_type='llama'),
        vision=dict(model_type='clip_vision_model', hidden_size=1024, intermediate_size=4096,
                    num_hidden_layers=24, num_attention_heads=16, image_size=336, patch_size=14,
                    projection_dim=768),
        processor=dict(image_processor_type='CLIPImageProcessor', size={'shortest_edge': 336},
                       crop_size={'height': 336, 'width': 336})),
    'qwen2_5_vl': dict(
        family='Qwen2_5_VL', pre='qwen2', image='<|vision_start|><|image_pad|><|vision_end|>',
        tokens=dict(image_token_id='<|image_pad|>', video_token_id='<|video_pad|>',
                    vision_start_token_id='<|vision_start|>', vision_end_token_id='<|vision_end|>'),
        text=dict(rope_parameters=dict(rope_theta=1e6, rope_type='default', mrope_section=[8, 12, 12])),
        vision=dict(depth=32, hidden_size=1280, intermediate_size=3420, num_heads=16, out_hidden_size=512,
                    patch_size=14, window_size=112, fullatt_block_indexes=[7, 15, 23, 31]),
        processor=dict(image_processor_type='Qwen2VLImageProcessor', min_pixels=3136, max_pixels=1003520,
                       image_mean=CLIP_MEAN, image_std=CLIP_STD))}
TEMPLATE = """
{%- for message in messages -%}
  {%- if message.content is string -%}{{ message.content }}
  {%- else -%}
    {%- for part in message.content -%}
      {%- if part.type == 'text' -%}{{ part.text }}{%- else -%}IMAGE{%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endfor -%}"""
PROMPT = ' what is on this'


def write_model(name, folder):
    """Writes a Hugging Face directory with random weights."""
    spec = MODELS[name]
    tokenizer = make_dummy_checkpoint.make_tokenizer(VOCABULARY)
    # AutoTokenizer would add the last one to Qwen's, behind the model's vocabulary.
    tokenizer.add_special_tokens([*spec['tokens'].values(), '<|endoftext|>'])
    fields = {field: tokenizer.token_to_id(token) for field, token in spec['tokens'].items()}
    end = tokenizer.token_to_id('<|end|>')
    text = TEXT | spec['text'] | dict(vocab_size=tokenizer.get_vocab_size(), eos_token_id=end, bos_token_id=end)
    config = getattr(transformers, spec['family'] + 'Config')(
        text_config=text, vision_config=spec['vision'], tie_word_embeddings=False, **fields)
    torch.manual_seed(0)
    model = getattr(transformers, spec['family'] + 'ForConditionalGeneration')(config)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / 'tokenizer_config.json').write_text(json.dumps(
        {'tokenizer_class': 'GPT2Tokenizer', 'eos_token': '<|end|>', 'add_bos_token': False}))
    (folder / 'chat_template.jinja').write_text(TEMPLATE.replace('IMAGE', spec['image']))
    (folder / 'preprocessor_config.json').write_text(json.dumps(spec['processor']))
    tokenizer.save(str(folder / 'tokenizer.json'))


def make_image(seed):
    """A JPEG of smooth colors with some noise."""
    random = np.random.default_rng(seed)
    coarse = PIL.Image.fromarray(random.integers(0, 256, (12, 16, 3), np.uint8)).resize((640, 480))
    noisy = np.asarray(coarse, np.int16) + random.integers(-8, 9, (480, 640, 3), np.int16)
    out = io.BytesIO()
    PIL.Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(out, 'JPEG', quality=90)
    return out.getvalue()


class Http:
    """A server with the OpenAI API."""

    def __init__(self, name, url):
        self.name, self.url = name, url

    def ask(self, image):
        url = 'data:image/jpeg;base64,' + base64.b64encode(image).decode()
        body = json.dumps({'temperature': 0, 'max_tokens': 1, 'messages': [{'role': 'user', 'content': [
            {'type': 'image_url', 'image_url': {'url': url}}, {'type': 'text', 'text': PROMPT}]}]}).encode()
        request = urllib.request.Request(self.url + '/v1/chat/completions', body,
                                         {'Content-Type': 'application/json'})
        start = time.perf_counter()
        usage = json.load(urllib.request.urlopen(request, timeout=600))['usage']
        return time.perf_counter() - start, usage['prompt_tokens']

    def run(self, images, concurrency):
        """Returns the seconds of each request, and the tokens of a prompt."""
        with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
            answers = list(pool.map(self.ask, images))
        return [seconds for seconds, _ in answers], answers[0][1]


class Transformers:
    def __init__(self, name, folder, dtype):
        spec = MODELS[name]
        self.name = f'transformers {dtype}'
        family = getattr(transformers, spec['family'] + 'ForConditionalGeneration')
        self.model = family.from_pretrained(folder, dtype=dtype).eval()
        self.processor = transformers.AutoImageProcessor.from_pretrained(folder)
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / 'tokenizer.json'))
        self.image_id = self.model.config.image_token_id
        self.prompt = tokenizer.encode(spec['image'] + PROMPT).ids

    @torch.inference_mode()
    def first_tokens(self, images):
        opened = [PIL.Image.open(io.BytesIO(image)).convert('RGB') for image in images]
        features = self.processor(images=opened, return_tensors='pt')
        if 'image_grid_thw' in features:
            rows = int(features['image_grid_thw'][0].prod()) // 4
        else:
            rows = (features['pixel_values'].shape[-1] // 14) ** 2
        at = self.prompt.index(self.image_id)
        ids = self.prompt[:at] + [self.image_id] * rows + self.prompt[at + 1:]
        inputs = dict(features, input_ids=torch.tensor([ids] * len(images)))
        inputs['pixel_values'] = inputs['pixel_values'].to(self.model.dtype)
        if 'image_grid_thw' in features:
            inputs['mm_token_type_ids'] = (inputs['input_ids'] == self.image_id).int()
        self.model(**inputs, logits_to_keep=1).logits[:, -1].argmax(-1).tolist()
        return len(ids)

    def run(self, images, concurrency):
        seconds, tokens = [], 0
        for first in range(0, len(images), concurrency):
            batch = images[first:first + concurrency]
            start = time.perf_counter()
            tokens = self.first_tokens(batch)
            seconds += [time.perf_counter() - start] * len(batch)
        return seconds, tokens


CONVERT = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + '/gguf-py']
from conversion.base import TextModel
pre = sys.argv[2]
TextModel.get_vocab_base_pre = lambda self, tokenizer: pre  # it knows published tokenizers alone
sys.argv = [sys.argv[1]] + sys.argv[3:]
import convert_hf_to_gguf
convert_hf_to_gguf.main()
"""


def write_clip(folder, out, dtype):
    """Writes the tower and the projector of a LLaVA, which llama.cpp's script does not convert."""
    import gguf
    import safetensors.torch
    vision = MODELS['llava']['vision']
    writer = gguf.GGUFWriter(out, 'clip')
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type('mlp')
    writer.add_vision_image_size(vision['image_size'])
    writer.add_vision_patch_size(vision['patch_size'])
    writer.add_vision_embedding_length(vision['hidden_size'])
    writer.add_vision_feed_forward_length(vision['intermediate_size'])
    writer.add_vision_projection_dim(TEXT['hidden_size'])
    writer.add_vision_block_count(vision['num_hidden_layers'])
    writer.add_vision_head_count(vision['num_attention_heads'])
    writer.add_vision_attention_layernorm_eps(1e-5)
    writer.add_vision_image_mean(CLIP_MEAN)
    writer.add_vision_image_std(CLIP_STD)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, vision['num_hidden_layers'])
    matrices = {'bf16': gguf.GGMLQuantizationType.BF16, 'f16': gguf.GGMLQuantizationType.F16}[dtype]
    for name, tensor in safetensors.torch.load_file(folder / 'model.safetensors').items():
        name = name.removeprefix('model.')
        projector = name.startswith('multi_modal_projector.linear_')
        if not projector and not name.startswith('vision_tower.'):
            continue
        if projector:
            short = name.replace('multi_modal_projector.linear_1', 'mm.0').replace(
                'multi_modal_projector.linear_2', 'mm.2')
        else:
            stem = name.removeprefix('vision_tower.').removeprefix('vision_model.')
            short = names.get_name('vision_tower.vision_model.' + stem, try_suffixes=('.weight', '.bias'))
        kind = matrices if tensor.dim() == 2 and 'position_embd' not in short else gguf.GGMLQuantizationType.F32
        if 'patch_embd' in short:  # there is no convolution in bf16
            kind = gguf.GGMLQuantizationType.F16
        values = gguf.quants.quantize(tensor.float().numpy(), kind)
        writer.add_tensor(short, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert(args, name, folder):
    """Returns {type: (file, mmproj)}."""
    found = {}
    for kind in ('bf16', 'f16'):
        files = [folder / f'{part}.{kind}.gguf' for part in ('text', 'mmproj')]
        found[kind] = files
        for file, flags in zip(files, ([], ['--mmproj'])):
            if file.exists():
                continue
            if flags and name == 'llava':
                write_clip(folder, file, kind)
                continue
            subprocess.run([sys.executable, '-c', CONVERT, args.llama, MODELS[name]['pre'], folder, '--outtype',
                            kind, '--outfile', file, *flags], check=True, stdout=subprocess.DEVNULL)
    return found


def start_servers(args, stack, name, folder, threads):
    """Returns engines that answer over HTTP."""
    binary = os.environ.get('TOKAMAK_BINARY', str(ROOT / 'build' / 'tokamak'))
    pinned = ['taskset', '-c', args.cpus]
    url = stack.enter_context(serving([*pinned, binary, 'serve', folder, '--threads', threads, '--device', 'cpu']))
    engines = [Http('tokamak', url)]
    if not args.llama:
        return engines
    for kind, (text, mmproj) in convert(args, name, folder).items():
        url = stack.enter_context(serving([
            *pinned, args.llama_server, '-m', text, '--mmproj', mmproj, '-t', threads, '-tb', threads, '-c', 16384,
            '-np', 4, '-b', 2048, '-ub', 2048, '--jinja', '--no-warmup', '--cache-ram', 0]))
        engines.append(Http(f'llama-server {kind}', url))
    return engines


def summary(rates, name):
    values = rates[name]
    return {'images_s': round(statistics.median(v[0] for v in values), 3),
            'least': round(min(v[0] for v in values), 3), 'greatest': round(max(v[0] for v in values), 3),
            'first_token_s': round(statistics.median(v[1] for v in values), 3)}


def best_of(rates, peer):
    """The faster type of a peer."""
    names = [name for name in rates if name.split()[0] == peer]
    return max(names, key=lambda name: summary(rates, name)['images_s'])


def compare(args, name, engines, concurrency):
    rates, tokens = {engine.name: [] for engine in engines}, {}
    for run in range(args.runs + 1):
        # All engines see the same new images, so that no cache knows them.
        images = [make_image(1000 * run + 100_000 * concurrency + i) for i in range(args.images)]
        for engine in engines:
            start = time.perf_counter()
            seconds, tokens[engine.name] = engine.run(images, concurrency)
            rate = len(images) / (time.perf_counter() - start)
            say(f'{name}, {concurrency} at a time, run {run}: {engine.name}: {rate:.3f} images/s')
            if run > 0:  # run 0 warms up
                rates[engine.name].append((rate, statistics.median(seconds)))
    peers = [best_of(rates, peer) for peer in sorted({e.name.split()[0] for e in engines[1:]})]
    ours = summary(rates, 'tokamak')
    print(json.dumps({
        'model': name, 'concurrency': concurrency, 'images': args.images, 'runs': args.runs, 'cpus': args.cpus,
        'prompt_tokens': tokens, **{n: summary(rates, n) for n in rates},
        'ratios': {peer: {'images_s': round(ours['images_s'] / summary(rates, peer)['images_s'], 2),
                          'first_token': round(summary(rates, peer)['first_token_s'] / ours['first_token_s'], 2)}
                   for peer in peers},
        'load': os.getloadavg()[0],
        'versions': {'torch': torch.__version__, 'transformers': transformers.__version__}}), flush=True)


def parse_cpus(text):
    cpus = set()
    for part in text.split(','):
        first, _, last = part.partition('-')
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--models', default=','.join(MODELS))
    parser.add_argument('--images', type=int, default=8)
    parser.add_argument('--concurrency', default='1,4')
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--cpus', default=','.join(map(str, sorted(os.sched_getaffinity(0)))))
    parser.add_argument('--torch-types', default='float32,bfloat16', help='those of transformers')
    parser.add_argument('--llama', help='the source of llama.cpp')
    parser.add_argument('--llama-server', help='its server')
    parser.add_argument('--keep', type=pathlib.Path, help='where models are kept for the next time')
    args = parser.parse_args()
    cpus = parse_cpus(args.cpus)
    os.sched_setaffinity(0, cpus)
    torch.set_num_threads(len(cpus))
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.models.split(','):
            folder = (args.keep or pathlib.Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / 'tokenizer.json').exists():  # which is written last
                write_model(name, folder)
            with contextlib.ExitStack() as stack:
                engines = start_servers(args, stack, name, folder, len(cpus))
                engines += [Transformers(name, folder, dtype) for dtype in args.torch_types.split(',')]
                for concurrency in map(int, args.concurrency.split(',')):
                    compare(args, name, engines, concurrency)


if __name__ == '__main__':
    main()
