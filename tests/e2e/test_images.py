#!/usr/bin/env python3
"""Sends pictures to a golden LLaVA through the real `openai` client and the command line. Answers must
be those of transformers, token by token."""

import base64
import concurrent.futures
import functools
import http.server
import json
import pathlib
import tempfile
import threading
import unittest

import image_model
import support
import tiny_model
from image_model import picture, text_of, tokens_of
from support import tokamak

try:
    import openai
except ImportError:
    openai = None

MODEL = 'llava_odd'  # its images have 16 tokens
LENGTH = 16  # tokens of the goldens' answers
# The goldens were made in float32. These answers go on behind end tokens.
GREEDY = {'temperature': 0, 'max_tokens': LENGTH}
IGNORE_EOS = {'ignore_eos': True}


def image_part(name, **options):
    data = base64.b64encode(picture(name).read_bytes()).decode()
    kind = {'jpg': 'jpeg'}.get(name.rsplit('.')[-1], name.rsplit('.')[-1])
    return {'type': 'image_url', 'image_url': {'url': f'data:image/{kind};base64,{data}', **options}}


def message(parts):
    """What the user says in a golden, as a message of the API."""
    return {'role': 'user', 'content': [
        image_part(part) if isinstance(part, str) else {'type': 'text', 'text': text_of(part)}
        for part in parts]}


class WithFolder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix='tokamak-images-'))
        image_model.write(cls.folder, MODEL)


@unittest.skipIf(openai is None, 'the openai package is not there; run scripts/setup-test-refs')
class OpenAiClient(WithFolder):
    def setUp(self):
        self.start(self.folder)

    def start(self, folder):
        self.server = self.enterContext(support.Server('--precise', model=folder))
        self.client = self.server.client()
        self.model = self.client.models.list().data[0].id

    def chat(self, messages, **options):
        return self.client.chat.completions.create(model=self.model, messages=messages,
                                                   extra_body=IGNORE_EOS, **GREEDY, **options)

    def encoded(self):
        return self.server.metrics()['tokamak_images_encoded_total']

    def test_answers_are_those_of_transformers(self):
        self.check_conversations(MODEL)

    def test_images_in_tiles_have_the_answers_of_transformers(self):
        with tempfile.TemporaryDirectory(prefix='tokamak-images-') as folder:
            image_model.write(folder, 'llava_next_odd')
            self.start(folder)
            self.check_conversations('llava_next_odd')

    def check_conversations(self, model):
        for turns in image_model.conversations(model):
            messages, images = [], 0
            for turn in turns:
                before = self.encoded()
                with self.subTest(turn):
                    messages.append(message(turn['parts']))
                    answer = self.chat(messages)
                    text = answer.choices[0].message.content
                    self.assertEqual(tokens_of(text), turn['answer'])
                    self.assertEqual(answer.usage.prompt_tokens, turn['prompt_tokens'])
                    cached = answer.usage.prompt_tokens_details.cached_tokens
                    self.assertEqual(cached > 0, images > 0, cached)
                    # The images of earlier turns are in the prefix cache.
                    new = sum(isinstance(part, str) for part in turn['parts'])
                    self.server.wait_until(lambda h: h['running'] == 0, 'nothing runs')
                    self.assertLessEqual(self.encoded() - before, new)
                    images += new
                    messages.append({'role': 'assistant', 'content': text})

    def test_the_second_turn_encodes_nothing_anew(self):
        turns = image_model.conversations(MODEL)[0]
        self.assertFalse(any(isinstance(part, str) for part in turns[1]['parts']))
        first = message(turns[0]['parts'])
        self.chat([first])
        self.server.wait_until(lambda h: h['running'] == 0, 'nothing runs')
        self.assertEqual(self.encoded(), 1)
        answer = self.chat([first, {'role': 'assistant', 'content': text_of(turns[0]['answer'])},
                            message(turns[1]['parts'])])
        self.assertEqual(tokens_of(answer.choices[0].message.content), turns[1]['answer'])
        self.assertGreaterEqual(answer.usage.prompt_tokens_details.cached_tokens, 16)
        self.server.wait_until(lambda h: h['running'] == 0, 'nothing runs')
        self.assertEqual(self.encoded(), 1)

    def test_streams_the_same_tokens(self):
        turn = image_model.conversations(MODEL)[1][0]
        text, usage, chunks = '', None, 0
        for chunk in self.chat([message(turn['parts'])], stream=True,
                               stream_options={'include_usage': True}):
            for choice in chunk.choices:
                text += choice.delta.content or ''
                chunks += bool(choice.delta.content)
            usage = chunk.usage or usage
        self.assertEqual(tokens_of(text), turn['answer'])
        self.assertEqual(usage.prompt_tokens, turn['prompt_tokens'])
        self.assertGreater(chunks, 1)

    def test_many_at_once_get_the_same_answers(self):
        turns = [turns[0] for turns in image_model.conversations(MODEL)] * 4
        with concurrent.futures.ThreadPoolExecutor(len(turns)) as pool:
            answers = list(pool.map(lambda turn: self.chat([message(turn['parts'])]), turns))
        for turn, answer in zip(turns, answers):
            self.assertEqual(tokens_of(answer.choices[0].message.content), turn['answer'])

    def test_models_and_tokenize_say_what_images_are(self):
        model = self.server.request('/v1/models')[1]['data'][0]
        self.assertEqual(model['input_modalities'], ['text', 'image'])
        self.assertEqual(model['images']['max_tokens'], 16)
        turn = image_model.conversations(MODEL)[0][0]
        status, answer = self.server.request('/tokenize', {'messages': [message(turn['parts'])]})
        self.assertEqual(status, 200, answer)
        before = len(turn['parts'][0])
        self.assertEqual(answer['images'], [{'position': before, 'count': 16}])
        self.assertEqual(answer['count'], turn['prompt_tokens'])
        self.assertEqual(answer['tokens'][before:before + 16], [image_model.IMAGE] * 16)
        # A text that spells the placeholder is one more.
        said = message([turn['parts'][0], 'rgb.png'])
        said['content'].append({'type': 'text', 'text': '<image>'})
        status, answer = self.server.request('/v1/chat/completions', {'messages': [said]})
        self.assertEqual(status, 400)
        self.assertIn('1 images and 2 placeholders', answer['error']['message'])

    def test_broken_images_are_refused_and_others_go_on(self):
        good = message(image_model.conversations(MODEL)[0][0]['parts'])
        whole = picture('rgb.png').read_bytes()
        for data, why in ((whole[:-20], 'PNG'), (b'GIF89a', 'GIF'), (b'hello', 'not a JPEG')):
            url = 'data:image/png;base64,' + base64.b64encode(data).decode()
            part = {'type': 'image_url', 'image_url': {'url': url}}
            with self.subTest(why), self.assertRaises(openai.BadRequestError) as refused:
                self.chat([{'role': 'user', 'content': [{'type': 'text', 'text': '[5]'}, part]}])
            self.assertEqual(refused.exception.param, 'messages[0].content[1].image_url.url')
            self.assertIn(why, str(refused.exception))
        self.assertEqual(len(tokens_of(self.chat([good]).choices[0].message.content)), LENGTH)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def url_part(url):
    return {'type': 'image_url', 'image_url': {'url': url}}


class ImagesElsewhere(WithFolder):
    """Images in files and on the web, which give the answers of data: URLs."""

    def setUp(self):
        handler = functools.partial(QuietHandler, directory=str(picture('')))
        web = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
        threading.Thread(target=web.serve_forever, daemon=True).start()
        self.addCleanup(web.server_close)
        self.addCleanup(web.shutdown)
        self.host = f'localhost:{web.server_port}'

    def ask(self, server, part):
        said = [{'type': 'text', 'text': '[5]'}, part]
        return server.request('/v1/chat/completions', {
            'messages': [{'role': 'user', 'content': said}], **GREEDY, **IGNORE_EOS})

    def test_answers_are_the_same(self):
        root = picture('').resolve()
        with support.Server('--precise', '--image-root', str(picture('')), '--allow-image-hosts',
                            f'example.org,{self.host}', '--allow-private-image-hosts',
                            model=self.folder) as server:
            for name in ('rgb.png', 'lossy.webp'):
                status, expected = self.ask(server, image_part(name))
                self.assertEqual(status, 200, expected)
                for url in (f'file://{root}/{name}', f'http://{self.host}/{name}'):
                    with self.subTest(url):
                        status, answer = self.ask(server, url_part(url))
                        self.assertEqual(status, 200, answer)
                        self.assertEqual(answer['choices'], expected['choices'])
            for url, why in ((f'http://{self.host}/none', 'HTTP status 404'),
                             (f'file://{root}/none', 'no such file'),
                             (f'file://{root}/../pictures.json', 'no such file'),
                             (f'http://{self.host}/', 'not a JPEG')):
                with self.subTest(url):
                    status, answer = self.ask(server, url_part(url))
                    self.assertEqual(status, 400, answer)
                    self.assertIn(why, answer['error']['message'])
                    self.assertEqual(answer['error']['param'], 'messages[0].content[1].image_url.url')

    def test_private_hosts_and_other_sources_need_their_flags(self):
        with support.Server('--allow-image-hosts', self.host, model=self.folder) as server:
            for url, why in ((f'http://{self.host}/rgb.png', '--allow-private-image-hosts'),
                             ('http://example.org/a.png', '--allow-image-hosts'),
                             ('file:///etc/passwd', '--image-root')):
                with self.subTest(url):
                    status, answer = self.ask(server, url_part(url))
                    self.assertEqual(status, 400, answer)
                    self.assertIn(why, answer['error']['message'])

    def test_bad_flags_end_the_start(self):
        for flags, why in ((('--image-root', '/nonexistent'), '--image-root'),
                           (('--allow-image-hosts', 'http://a'), '--allow-image-hosts')):
            with self.subTest(flags), self.assertRaises(support.DidNotStart) as ended:
                support.Server(*flags, model=self.folder)
            self.assertIn(why, str(ended.exception))


class SizesOfImages(unittest.TestCase):
    """mm_processor_kwargs, for a model that keeps about an image's size."""

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix='tokamak-images-'))
        image_model.write(cls.folder, 'qwen2_vl_odd')  # from 72 to 900 pixels, 36 for each token

    def test_requests_choose_them(self):
        with support.Server('--precise', '--mm-processor-kwargs', '{"max_pixels": 300}',
                            model=self.folder) as server:
            def tokens(path, **options):
                said = {'role': 'user', 'content': [image_part('lossy.webp')]}
                status, answer = server.request(path, {'messages': [said], 'max_tokens': 1, **options})
                self.assertEqual(status, 200, answer)
                return answer['count'] if path == '/tokenize' else answer['usage']['prompt_tokens']

            for path in ('/tokenize', '/v1/chat/completions'):
                small = tokens(path)
                self.assertLessEqual(small, 300 // 36)
                large = tokens(path, mm_processor_kwargs={'size': {'longest_edge': 900}})
                self.assertGreater(large, small)
                self.assertEqual(tokens(path, mm_processor_kwargs={'max_pixels': 900}), large)
            status, answer = server.request('/v1/chat/completions', {
                'messages': [{'role': 'user', 'content': 'a'}], 'mm_processor_kwargs': {'max_pixels': 901}})
            self.assertEqual(status, 400)
            self.assertEqual(answer['error']['param'], 'mm_processor_kwargs.max_pixels')
            self.assertIn('from 1 to 900 for this model, got 901', answer['error']['message'])

    def test_flags_choose_them(self):
        def run(kwargs):
            return tokamak('run', self.folder, '--raw', '-p', '<image>', '--image', picture('lossy.webp'),
                           '--max-tokens', '1', '--json', '--mm-processor-kwargs', kwargs, check=False)

        small, large = (json.loads(run(kwargs).stdout)['usage']['prompt_tokens']
                        for kwargs in ('{"max_pixels": 300}', '{}'))
        self.assertLess(small, large)
        for kwargs, why in (('300', 'is not a JSON object'), ('{"fps": 2}', 'fps: is not supported'),
                            ('{"max_pixels": "a"}', 'max_pixels: must be an integer, got "a"'),
                            ('{"max_pixels": 901}', '--mm-processor-kwargs max_pixels: must be from 1 to 900')):
            with self.subTest(kwargs):
                failed = run(kwargs)
                self.assertNotEqual(failed.returncode, 0)
                self.assertIn(why, failed.stderr)


class Mmproj(unittest.TestCase):
    """A GGUF model whose image encoder is in another file."""
    FOLDER = image_model.GOLDENS / 'mmproj' / 'llava_odd'

    def run_turn(self, folder, *flags, **options):
        turn = image_model.conversations('llava_odd', 'mmproj/pictures.json')[0][0]
        ids, images = [], []
        for part in turn['parts']:
            ids += [image_model.IMAGE] if isinstance(part, str) else part
            images += ['--image', picture(part)] if isinstance(part, str) else []
        ran = tokamak('run', folder / 'llava_odd.gguf', '--precise', '--token-ids', ','.join(map(str, ids)), *images,
                      '--temperature', '0', '--max-tokens', str(LENGTH), '--ignore-eos', '--json', *flags, **options)
        return ran, turn['answer']

    def test_is_found_beside_the_model_or_named(self):
        mmproj = self.FOLDER / 'mmproj-llava_odd.gguf'
        found, answer = self.run_turn(self.FOLDER)
        self.assertEqual(json.loads(found.stdout)['token_ids'], answer)
        with tempfile.TemporaryDirectory(prefix='tokamak-images-') as folder:
            folder = pathlib.Path(folder)
            (folder / 'llava_odd.gguf').symlink_to(self.FOLDER / 'llava_odd.gguf')
            named, answer = self.run_turn(folder, '--mmproj', mmproj)
            self.assertEqual(json.loads(named.stdout)['token_ids'], answer)
            failed, _ = self.run_turn(folder, check=False)
            self.assertIn('this model takes only text, no images', failed.stderr)
            for name in ('mmproj-1.gguf', 'mmproj-2.gguf'):
                (folder / name).symlink_to(mmproj)
            failed, _ = self.run_turn(folder, check=False)
            self.assertIn('--mmproj: there are several files beside', failed.stderr)
            self.assertIn('mmproj-2.gguf; name one of them', failed.stderr)


class WithoutImages(unittest.TestCase):
    def test_a_text_model_names_the_part(self):
        with tempfile.TemporaryDirectory(prefix='tokamak-images-') as folder:
            tiny_model.write(folder, '{{ messages[0].content }}')
            with support.Server(model=folder) as server:
                self.assertNotIn('tokamak_images_encoded_total', server.metrics())
                self.refuses(server)

    def test_a_model_without_a_processor_takes_only_text(self):
        with tempfile.TemporaryDirectory(prefix='tokamak-images-') as folder:
            image_model.write(folder, MODEL, processor=False)
            with support.Server(model=folder) as server:
                self.assertIn('preprocessor_config.json: does not exist', ''.join(server.log))
                self.refuses(server)

    def refuses(self, server):
        self.assertEqual(server.request('/v1/models')[1]['data'][0]['input_modalities'], ['text'])
        status, answer = server.request('/v1/chat/completions', {'messages': [
            {'role': 'user', 'content': [{'type': 'text', 'text': '[1]'}, image_part('rgb.png')]}]})
        self.assertEqual(status, 400)
        self.assertEqual(answer['error']['param'], 'messages[0].content[1].type')
        self.assertIn('not supported by this model', answer['error']['message'])


class CommandLine(WithFolder):
    def run_turn(self, turn, *flags):
        names = [part for part in turn['parts'] if isinstance(part, str)]
        prompt = ''.join('<image>' if isinstance(part, str) else text_of(part) for part in turn['parts'])
        images = [argument for name in names for argument in ('--image', picture(name))]
        return json.loads(tokamak(
            'run', self.folder, '--precise', '--raw', '-p', prompt, *images, '--temperature', '0',
            '--max-tokens', str(LENGTH), '--ignore-eos', '--json', *flags).stdout)

    def test_run_takes_images(self):
        turn = image_model.conversations(MODEL)[2][0]
        answer = self.run_turn(turn)
        self.assertEqual(answer['token_ids'], turn['answer'])
        self.assertEqual(answer['usage']['prompt_tokens'], turn['prompt_tokens'])

    def test_a_record_has_the_images(self):
        with tempfile.TemporaryDirectory(prefix='tokamak-images-') as folder:
            record = folder + '/run.rec'
            self.run_turn(image_model.conversations(MODEL)[1][0], '--record', record)
            replayed = json.loads(tokamak('replay', record, '--json').stdout)
        self.assertEqual(replayed['tokens'], LENGTH)

    def test_a_file_that_is_no_image_is_named(self):
        file = image_model.GOLDENS / 'pictures.json'
        failed = tokamak('run', self.folder, '-p', '[1]', '--image', file, check=False)
        self.assertEqual(failed.returncode, 1)
        self.assertIn(f'{file}: the image is not a JPEG', failed.stderr)

    def test_plan_counts_the_memory_for_images(self):
        few, many = (json.loads(tokamak('plan', self.folder, '--device', 'h200', '--json',
                                        '--image-cache-tokens', tokens).stdout)
                     for tokens in ('10000', '20000'))
        hidden_size = 42  # of f32
        self.assertEqual(many['encoder_bytes'] - few['encoder_bytes'], 10000 * 4 * hidden_size)


if __name__ == '__main__':
    support.main(needs_model=False)
