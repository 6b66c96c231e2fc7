#!/usr/bin/env python3
"""Tests the web page's accessibility in headless Chromium: names, contrast, keyboard, narrow
screens."""

import browser
import page_support
from page_support import ENDED, STATE, PageTest


def contrast(a, b):
    """The contrast ratio of two [r, g, b] as WCAG 2 defines it."""
    def luminance(colour):
        parts = [c / 255 for c in colour]
        parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


# [text, what, color, background] of every visible element that has its own text.
COLOURS = '''
const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
const over = (colours) => {
  canvas.clearRect(0, 0, 1, 1);
  for (const c of colours) { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); }
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const result = [];
for (const e of document.querySelectorAll('body *')) {
  const text = [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join('');
  if (!text || !e.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
  if (e.closest('.hidden, .skip, svg, noscript, :disabled, option')) continue;
  const backgrounds = [];
  for (let p = e; p; p = p.parentElement) backgrounds.unshift(getComputedStyle(p).backgroundColor);
  result.push([text.slice(0, 40), e.tagName + '.' + e.className + '#' + e.id,
               over([...backgrounds, getComputedStyle(e).color]), over(backgrounds)]);
}
return result'''

CONTROLS = 'a[href], button, input, textarea, select, summary, canvas, svg[role], dialog, [tabindex="0"], img'


class ForEverybody(PageTest):
    def setUp(self):
        super().setUp()
        self.stand_in.paths['/debug/state'] = (200, STATE)
        self.stand_in.answer = lambda _: [{'reasoning_content': 'Hm.'},
                                          'Look:\n\n```python\nx = 1  # note\n```\n\n| a | b |\n|---|',
                                          '---|\n| 1 | 2 |\n\n- `x`\n\n> q\n\n[l](https://e.com/)']

    def test_every_control_has_a_name(self):
        self.open()
        self.say('Hello')
        for opener in (None, '#show-settings', '#show-help'):
            if opener:
                self.browser.one(opener).click()
            seen = 0
            # Elements outside an open dialog cannot be reached.
            scope = 'dialog[open] ' if opener else ''
            for element in self.browser.all(', '.join(scope + c for c in CONTROLS.split(', '))):
                visible, decoration, markup = self.browser.run(
                    'return [args[0].checkVisibility({visibilityProperty: true}), '
                    'args[0].alt === "", args[0].outerHTML.slice(0, 90)]',
                    {browser.ELEMENT: element.reference})
                if visible and not decoration:
                    self.assertNotEqual(element.label, '', markup)
                    seen += 1
            self.assertGreater(seen, 1 if opener else 20)
            if opener:
                self.browser.press('Escape')

    def test_landmarks_and_headings(self):
        self.open()
        roles = {selector: self.browser.one(selector).role
                 for selector in ('.top', 'nav', 'main', 'aside', '#announce')}
        self.assertEqual(roles, {'.top': 'banner', 'nav': 'navigation', 'main': 'main',
                                 'aside': 'complementary', '#announce': 'status'})
        self.assertEqual(len(self.browser.all('h1')), 1)
        self.assertEqual(self.browser.run('return document.documentElement.lang'), 'en')
        ids = self.browser.run('return [...document.querySelectorAll("[id]")].map((e) => e.id)')
        self.assertEqual(len(ids), len(set(ids)))

    def test_an_answer_is_announced_once_when_it_is_complete(self):
        self.stand_in.answer = lambda _: ['one ', 0.1, 'two ', 0.1, 'three']
        self.open()
        self.browser.run('window.said = []; new MutationObserver(() => window.said.push('
                         'document.getElementById("announce").textContent)).observe('
                         'document.getElementById("announce"), {childList: true})')
        self.say('Hello')
        self.assertEqual(self.browser.run('return window.said'), ['Answer: one two three'])
        self.assertEqual(self.browser.all('.messages[aria-live], .scroll[aria-live]'), [])

    def test_text_can_be_read_in_light_and_dark(self):
        for scheme in ('light', 'dark'):
            self.browser.colours(scheme)
            self.open()
            self.say('Hello')
            self.browser.wait('return document.querySelector("#engine-body section")')
            self.browser.wait('return document.querySelector(".hljs-number")')
            for opener in (None, '#show-settings', '#show-help'):
                if opener:
                    self.browser.one(opener).click()
                colours = self.browser.run(COLOURS)
                self.assertGreater(len(colours), 40)
                for text, what, colour, background in colours:
                    self.assertGreaterEqual(contrast(colour, background), 4.5,
                                            f'{scheme}: "{text}" in {what}')
                if opener:
                    self.browser.press('Escape')

    def test_the_theme_can_be_chosen_and_stays(self):
        background = 'return getComputedStyle(document.body).backgroundColor'
        self.browser.colours('dark')
        self.open()
        dark = self.browser.run(background)
        self.browser.colours('light')
        light = self.browser.run(background)
        self.assertNotEqual(dark, light)
        button = self.browser.one('#theme')
        button.click()
        button.click()
        self.assertEqual(button.label, 'Colours: dark')
        self.assertEqual(self.browser.run(background), dark)
        self.browser.open(self.stand_in.url + '/')
        self.assertEqual(self.browser.run(background), dark)

    def test_narrow_screens(self):
        word = 'incomprehensibility' * 12
        self.stand_in.answer = lambda _: [f'{word}\n\n```\n{word}\n```\n\n| {word} | b |\n|---|---|\n']
        for width in (320, 375, 768, 1024):
            self.browser.resize(width, 640)
            self.open()
            self.say(word)
            for action in (None, '#toggle-engine', '#close-engine', '#toggle-list'):
                if action == '#toggle-list' and width >= 800:
                    continue
                if action:
                    self.browser.one(action).click()
                if action == '#toggle-engine':
                    self.browser.wait('return document.querySelector("#engine-body section")')
                wider = self.browser.run('''
                    const root = document.documentElement;
                    return [root, ...document.querySelectorAll('body, .scroll, .engine, .list, .top')]
                        .filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)
                        .map((e) => `${e.tagName}.${e.className}: ${e.scrollWidth}`)''')
                self.assertEqual(wider, [], f'{width} px after {action}')
            self.browser.press('Escape')

    def test_the_chat_has_room_and_the_model_a_name(self):
        """The engine panel is open at the start only if the chat keeps its full width."""
        for width, shown, least in ((1440, True, 700), (1280, False, 700), (1024, False, 700),
                                    (390, False, 350), (320, False, 290)):
            self.browser.resize(width, 844)
            self.open()
            self.assertEqual(self.browser.run(
                'return document.querySelector("aside").checkVisibility({visibilityProperty: true})'),
                shown, width)
            self.assertGreaterEqual(self.browser.run(
                'return document.getElementById("messages").clientWidth'), least, width)
            name = self.browser.wait('return document.getElementById("model").textContent')
            self.assertIn('SmolLM2', name)
            if width >= 390:  # the whole name, in two lines on a phone
                self.assertTrue(self.browser.run(
                    'const m = document.getElementById("model");'
                    'return m.scrollWidth <= m.clientWidth && m.scrollHeight <= m.clientHeight'), width)
        # At 1280 the panel can be opened beside the chat.
        self.browser.resize(1280, 844)
        self.browser.one('#toggle-engine').click()
        self.assertTrue(self.browser.run('return document.querySelector("aside").checkVisibility()'))
        self.assertTrue(self.browser.run('return document.getElementById("scrim").hidden'))

    def test_a_drawer_that_covers_the_page_is_a_dialog(self):
        self.browser.resize(700, 640)
        self.open()
        self.say('Hello')
        for name, first in (('engine', 'close-engine'), ('list', 'new')):
            drawer, toggle = self.browser.one(f'#{name}'), self.browser.one(f'#toggle-{name}')
            for close in (lambda: self.browser.press('Escape'),
                          lambda name=name: self.browser.one(f'#close-{name}').click()):
                toggle.click()
                self.assertEqual(drawer.role, 'dialog')
                self.assertEqual(self.browser.run('return document.activeElement.id'), first)
                for _ in range(25):  # Tab cycles within the drawer and the browser's own controls
                    self.browser.press('Tab')
                    self.assertTrue(self.browser.run(
                        'const at = document.activeElement;'
                        'return at === document.body || args[0].contains(at)',
                        {browser.ELEMENT: drawer.reference}))
                close()
                self.assertEqual(self.browser.run('return document.activeElement.id'),
                                 f'toggle-{name}')
                self.assertNotEqual(drawer.role, 'dialog')
        # On a wide screen it is no longer a dialog, and everything can be reached again.
        self.browser.one('#toggle-list').click()
        self.browser.resize(1440, 900)
        self.browser.wait('return !document.querySelector("[inert]") && '
                          'document.getElementById("scrim").hidden')
        self.assertEqual(self.browser.one('aside').role, 'complementary')

    def test_the_keyboard_is_enough(self):
        self.open()
        reached = set()
        for _ in range(40):
            reached.add(self.browser.run('return document.activeElement.id'))
            self.browser.press('Tab')
        self.assertLessEqual({'new', 'input', 'show-settings', 'send', 'theme', 'toggle-engine',
                              'show-help'}, reached)
        self.browser.run('document.activeElement.blur()')
        self.browser.press('/')
        self.browser.type('First line')
        self.browser.press('Shift', 'Enter')
        self.browser.type('second line')
        self.browser.press('Enter')
        self.browser.wait(ENDED, 1)
        self.assertEqual(self.messages()[0]['content'], 'First line\nsecond line')
        self.browser.press('ArrowUp')  # in the empty box this edits the last message
        self.browser.run('document.activeElement.select()')
        self.browser.type('Edited')
        self.browser.press('Enter')
        self.browser.wait(ENDED, 1)
        self.assertEqual(self.messages()[0]['content'], 'Edited')
        self.browser.press('Alt', 'r')
        self.browser.wait(ENDED, 1)
        self.assertEqual(len(self.messages()[1]['versions']), 2)
        self.browser.press('Alt', 's')
        self.assertTrue(self.browser.run('return document.getElementById("settings").open'))
        self.browser.press('Escape')
        self.browser.press('Alt', 'n')
        self.browser.wait('return document.querySelector(".welcome")')
        self.browser.press('Alt', 'e')
        self.assertFalse(self.browser.run(
            'return document.querySelector("aside").checkVisibility()'))


if __name__ == '__main__':
    page_support.main()
