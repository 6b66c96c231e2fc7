#!/usr/bin/env python3
"""Tests images on the web page in headless Chromium, with a golden LLaVA."""

import base64
import struct
import tempfile

import image_model
import page_support
import tiny_model
from image_model import picture, text_of, tokens_of
from page_support import ENDED, PageTest
from support import Server

# Makes files of [name, type, base64] and hands them to the page as the browser does.
FILES = """
const transfer = new DataTransfer();
for (const [name, type, data] of args[0]) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  transfer.items.add(new File([bytes], name, {type}));
}
const options = {bubbles: true, cancelable: true};
"""
DROP = FILES + """
document.getElementById('chat').dispatchEvent(
    new DragEvent('drop', {...options, dataTransfer: transfer}));"""
PASTE = FILES + """
document.getElementById('input').dispatchEvent(
    new ClipboardEvent('paste', {...options, clipboardData: transfer}));"""
SETTINGS = {'temperature': 0, 'max_tokens': 16, 'ignore_eos': True}


def data_of(name):
    return base64.b64encode(picture(name).read_bytes()).decode()


def bmp(width, height):
    """A picture in a format that browsers read and the server does not."""
    row = bytes(range(3)) * width
    pixels = (row + bytes(-len(row) % 4)) * height
    return b'BM' + struct.pack('<IHHIIiiHHIIiiII', 54 + len(pixels), 0, 0, 54, 40, width, height, 1, 24,
                               0, len(pixels), 0, 0, 0, 0) + pixels


class ImagePageTest(PageTest):
    def give(self, how, *files):
        """Drops or pastes (name, type)."""
        self.browser.run(how, [[name, kind, data_of(name)] for name, kind in files])

    def thumbnails(self, count):
        self.browser.wait(
            'const shown = [...document.querySelectorAll("#attached img")];'
            'return shown.length === args[0] && shown.every((image) => image.naturalWidth > 0)',
            count, what=f'{count} thumbnails are shown')

    def banner(self, text):
        self.browser.wait('const banner = document.getElementById("banner");'
                          'return !banner.hidden && banner.textContent.includes(args[0])', text,
                          what=f'the page says "{text}"')

    def ready(self):
        self.browser.wait('return document.getElementById("model").textContent',
                          what='the page knows the model')


class Images(ImagePageTest):
    @classmethod
    def start_server(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix='tokamak-images-'))
        image_model.write(folder, 'llava_siglip')
        return Server('--precise', model=folder)

    def test_a_dropped_image_is_answered_as_by_transformers(self):
        turns = image_model.conversations('llava_siglip')[0]
        self.assertEqual(turns[0]['parts'][0], 'rgb.png')
        self.open(settings=SETTINGS)
        self.ready()
        self.give(DROP, ('rgb.png', 'image/png'))
        self.thumbnails(1)
        self.say(text_of(turns[0]['parts'][1]))
        self.thumbnails(0)
        content = self.stand_in.bodies[-1]['messages'][0]['content']
        self.assertEqual(content, [
            {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,' + data_of('rgb.png')}},
            {'type': 'text', 'text': text_of(turns[0]['parts'][1])}])
        self.say(text_of(turns[1]['parts'][0]), answers=2)
        # The image is still part of the conversation.
        self.assertEqual(self.stand_in.bodies[-1]['messages'][0]['content'], content)
        for turn, message in zip(turns, self.messages()[1::2]):
            self.assertEqual(tokens_of(message['versions'][0]['content']), turn['answer'])

    def test_images_stay_with_their_message(self):
        self.open(settings=SETTINGS)
        self.ready()
        self.give(DROP, ('rgb.png', 'image/png'), ('gray.jpg', 'image/jpeg'))
        self.thumbnails(2)
        self.give(PASTE, ('lossy.webp', 'image/webp'))
        self.thumbnails(3)
        self.browser.one('#image-file').type(str(picture('plain.gif')))
        self.thumbnails(4)
        self.browser.one('[aria-label="Remove image 1"]').click()
        self.thumbnails(3)
        self.browser.one('#input').click()
        self.browser.press('Enter')  # without any text
        self.browser.wait(ENDED, 1, what='the answer has ended')
        sent = [part['image_url']['url'].partition(',')[2]
                for part in self.stand_in.bodies[-1]['messages'][0]['content']]
        self.assertEqual(sent, [data_of(name) for name in ('gray.jpg', 'lossy.webp', 'plain.gif')])
        self.browser.open(self.stand_in.url + '/')
        self.browser.wait('const shown = [...document.querySelectorAll(".message.user img")];'
                          'return shown.length === 3 && shown.every((i) => i.naturalWidth > 0)',
                          what='the images are shown again')

    def test_what_is_no_image_is_refused(self):
        self.open()
        self.ready()
        self.browser.run(DROP, [['notes.txt', 'text/plain', base64.b64encode(b'hello').decode()]])
        self.banner('“notes.txt” is not an image')
        self.thumbnails(0)

    def test_a_format_that_the_server_cannot_read_becomes_a_jpeg(self):
        self.open(settings=SETTINGS)
        self.ready()
        self.browser.run(DROP, [['picture.bmp', 'image/bmp', base64.b64encode(bmp(30, 20)).decode()]])
        self.thumbnails(1)
        self.say('[5]')
        url = self.stand_in.bodies[-1]['messages'][0]['content'][0]['image_url']['url']
        self.assertTrue(url.startswith('data:image/jpeg;base64,'), url[:40])
        self.assertEqual(len(tokens_of(self.messages()[1]['versions'][0]['content'])), 16)


class TextModel(ImagePageTest):
    @classmethod
    def start_server(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix='tokamak-images-'))
        tiny_model.write(folder, '{{ messages[0].content }}')
        return Server(model=folder)

    def test_images_are_refused(self):
        self.open()
        self.ready()
        self.assertTrue(self.browser.run('return document.getElementById("add-image").hidden'))
        self.give(DROP, ('rgb.png', 'image/png'))
        self.banner('This model takes no images.')
        self.thumbnails(0)


if __name__ == '__main__':
    page_support.main(needs_model=False)
