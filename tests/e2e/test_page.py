#!/usr/bin/env python3
"""Tests the web page in headless Chromium: conversations, keys, and the engine panel."""

import json
import pathlib
import re
import tempfile

import page_support
from page_support import ENDED, STATE, PageTest
from support import Server


class Conversation(PageTest):
    def test_an_answer_is_the_one_that_the_api_gives(self):
        self.open(settings={'temperature': 0, 'max_tokens': 40})
        question = 'Name three primary colours.'
        self.say(question)
        asked = {'messages': [{'role': 'user', 'content': question}], 'temperature': 0,
                 'max_tokens': 40}
        answer = self.server.request('/v1/chat/completions', asked)[1]
        expected = answer['choices'][0]['message']['content']
        self.assertEqual(self.messages()[1]['versions'][0]['content'], expected)
        shown = self.browser.one('.message.assistant .body').text
        self.assertEqual(re.findall('[A-Za-z]+', shown), re.findall('[A-Za-z]+', expected))
        figures = self.browser.one('.message.assistant .figures').text
        self.assertIn(f'{answer["usage"]["completion_tokens"]} tokens', figures)
        self.assertIn('seed', figures)

    def test_stop_cancels_and_keeps_what_there_is(self):
        # This seed's answer has thousands of tokens; others might end before they are stopped.
        self.open(settings={'max_tokens': 4000, 'temperature': 1.5, 'seed': 1})
        for stop in (lambda: self.browser.press('Escape'),
                     lambda: self.browser.one('#stop').click()):
            self.browser.one('#new').click()
            self.browser.one('#input').type('Count from one to a thousand in words.')
            self.browser.press('Enter')
            self.browser.wait('return document.querySelector(".message.assistant .body")'
                              '?.textContent.length > 20', what='something has come')
            stop()
            self.browser.wait(ENDED, 1, what='it has stopped')
            self.server.wait_until(lambda h: h['running'] == 0, 'nothing runs')
            version = self.messages()[1]['versions'][0]
            self.assertEqual(version['state'], 'stopped')
            self.assertGreater(len(version['content']), 20)
            # The page counts tokens and speed itself: the usage would follow the last token.
            figures = self.browser.one('.message.assistant .figures').text
            self.assertRegex(figures, r'^stopped · [1-9]\d* tokens · [\d.,]+ tokens/s · first token after')
            self.assertLessEqual(version['figures']['tokens'],
                                 self.server.metrics()['tokamak_generation_tokens_total'])

    def test_another_answer_is_a_version_to_go_back_from(self):
        self.open(settings={'max_tokens': 12, 'temperature': 1.5})
        self.say('Write a line of a poem.')
        self.browser.one('[title="Another answer"]').click()
        self.browser.wait(ENDED, 1, what='the second answer has ended')
        message = self.messages()[1]
        self.assertEqual((len(message['versions']), message['at']), (2, 1))
        self.assertNotEqual(message['versions'][0]['content'], message['versions'][1]['content'])
        self.browser.one('[title="Previous answer"]').click()
        self.assertEqual(self.messages()[1]['at'], 0)
        self.say('Go on.', answers=2)
        # The conversation continued from the version that was shown.
        self.assertEqual(self.stand_in.bodies[-1]['messages'][1]['content'],
                         message['versions'][0]['content'])

    def test_an_edited_message_starts_the_conversation_anew_from_there(self):
        self.open(settings={'max_tokens': 8, 'system': 'Be brief.', 'top_p': 0.9, 'top_k': 40,
                            'min_p': 0.05, 'seed': 5, 'temperature': 0.5, 'top_n_sigma': 1.5,
                            'presence_penalty': -0.5, 'repeat_last_n': 64, 'dry_multiplier': 0.8})
        self.say('one')
        self.say('two', answers=2)
        self.browser.run('document.querySelector(".message.user .foot button").click()')
        self.browser.run('document.activeElement.select()')
        self.browser.type('three')
        self.browser.press('Enter')
        self.browser.wait(ENDED, 1, what='the answer has ended')
        self.assertEqual([m.get('content') for m in self.messages()], ['three', None])
        body = self.stand_in.bodies[-1]
        self.assertEqual(body['messages'], [{'role': 'system', 'content': 'Be brief.'},
                                            {'role': 'user', 'content': 'three'}])
        for name, value in {'max_tokens': 8, 'top_p': 0.9, 'top_k': 40, 'min_p': 0.05, 'seed': 5,
                            'temperature': 0.5, 'top_n_sigma': 1.5, 'presence_penalty': -0.5,
                            'repeat_last_n': 64, 'dry_multiplier': 0.8, 'stream': True}.items():
            self.assertEqual(body[name], value, name)

    def test_conversations_survive_a_reload(self):
        self.open(settings={'max_tokens': 8})
        self.say('The first one')
        self.browser.one('#new').click()
        self.say('The second one')
        before = self.browser.run('return document.querySelector(".messages").innerText')
        self.browser.open(self.stand_in.url + '/')
        self.browser.wait('return document.querySelectorAll("#conversations li").length === 2')
        self.assertEqual(self.browser.run('return document.querySelector(".messages").innerText'),
                         before)
        titles = [item.text for item in self.browser.all('#conversations .open')]
        self.assertEqual(titles, ['The second one', 'The first one'])

    def test_drafts_survive_a_reload(self):
        """Each conversation keeps its own draft, as does a new one; a sent message is no draft."""
        self.stand_in.answer = lambda _: ['Yes.']
        self.open()
        written = 'return document.getElementById("input").value'
        self.say('The first one')
        self.browser.one('#input').type('Kept for the first')
        self.browser.one('#new').click()
        self.assertEqual(self.browser.run(written), '')
        self.browser.one('#input').type('Kept for a new one')
        for _ in range(2):
            self.browser.open(self.stand_in.url + '/')
            self.browser.wait('return document.querySelector("#conversations li")')
            self.assertEqual(self.browser.run(written), 'Kept for the first')
            self.browser.one('#new').click()
            self.assertEqual(self.browser.run(written), 'Kept for a new one')
        self.browser.one('#input').click()
        self.browser.press('Enter')
        self.browser.wait(ENDED, 1)
        self.browser.open(self.stand_in.url + '/')
        self.browser.wait('return document.querySelectorAll("#conversations li").length === 2')
        self.assertEqual(self.browser.run(written), '')
        self.browser.run('[...document.querySelectorAll("#conversations .open")].at(-1).click()')
        self.assertEqual(self.browser.run(written), 'Kept for the first')
        self.browser.one('#delete-all').click()
        self.browser.one('#confirm-yes').click()
        self.browser.wait('return document.querySelector(".welcome")')
        self.assertEqual(self.browser.run('return Object.keys(localStorage).filter('
                                          '(k) => k.startsWith("tokamak.draft."))'), [])

    def test_rename_export_delete(self):
        self.open(settings={'max_tokens': 8, 'system': 'Be kind.'})
        self.say('A question')
        self.browser.one('[title="Rename"]').click()
        self.browser.type('Café 1')
        self.browser.press('Enter')
        self.assertEqual(self.browser.one('#conversations .open').text, 'Café 1')
        with tempfile.TemporaryDirectory() as folder:
            self.browser.devtools('Browser.setDownloadBehavior', behavior='allow',
                                  downloadPath=folder)
            self.browser.one('[title="Export"]').click()
            path = pathlib.Path(folder) / 'Café-1.json'
            for _ in range(200):
                if path.exists():
                    break
                self.browser.run('return new Promise((f) => setTimeout(f, 50))')
            exported = json.loads(path.read_text())
        self.assertEqual(exported['title'], 'Café 1')
        self.assertEqual([m['role'] for m in exported['messages']], ['system', 'user', 'assistant'])
        self.browser.one('[title="Delete"]').click()
        self.browser.one('#confirm-yes').click()
        self.browser.wait('return document.querySelector(".welcome")')
        self.assertEqual(self.browser.run('return Object.keys(localStorage).filter('
                                          '(k) => k.startsWith("tokamak.conversation.")).length'), 0)

    def test_settings_are_applied_and_kept(self):
        self.open()
        self.browser.one('#show-settings').click()
        for name, value in {'temperature': '0', 'max_tokens': '5', 'seed': '9'}.items():
            self.browser.one(f'#settings [name={name}]').type(value)
        self.browser.one('#settings [type=submit]').click()
        self.say('Hello')
        body = self.stand_in.bodies[-1]
        self.assertEqual((body['temperature'], body['max_tokens'], body['seed']), (0, 5, 9))
        self.assertNotIn('top_p', body)
        self.assertIn('seed 9', self.browser.one('.message.assistant .figures').text)
        self.assertIn('max_tokens 5', self.browser.one('#show-settings').text)
        self.assertIn('cut at max_tokens', self.browser.one('.message.assistant .figures').text)

    def test_texts_and_biases_are_written_line_by_line(self):
        written = {'stop': 'END\n\n\\n\\nQ:\na\\\\nb', 'bad_words': ' sea', 'dynatemp_range': '0.5',
                   'dynatemp_exponent': '2', 'logit_bias': '{"17": -100, "5":1.5}'}
        meant = {'stop': ['END', '\n\nQ:', 'a\\nb'], 'bad_words': [' sea'], 'dynatemp_range': 0.5,
                 'dynatemp_exponent': 2, 'logit_bias': {'5': 1.5, '17': -100}}
        shown = {**written, 'stop': 'END\n\\n\\nQ:\na\\\\nb', 'logit_bias': '5: 1.5\n17: -100'}
        more = 'document.getElementById("settings-more").open'
        self.open(settings={'max_tokens': 5})
        self.browser.one('#show-settings').click()
        self.assertFalse(self.browser.run(f'return {more}'))
        self.browser.run(f'{more} = true')
        for name, text in written.items():
            self.browser.one(f'#settings [name={name}]').type(text)
        self.browser.one('#settings [type=submit]').click()
        self.say('Hello')
        self.browser.open(self.stand_in.url + '/')  # kept for this conversation and for new ones
        self.browser.wait('return document.querySelector(".message")')
        self.browser.one('#new').click()
        self.say('Again')
        for body in self.stand_in.bodies:
            self.assertEqual({name: body.get(name) for name in meant}, meant)
        self.assertIn(self.messages()[1]['versions'][0]['state'], ('done', 'length'))
        self.stand_in.answer = lambda _: ['Yes.']
        self.browser.one('#show-settings').click()
        self.assertTrue(self.browser.run(f'return {more}'))
        fields = 'return Object.fromEntries(args[0].map((n) => [n, document.forms["settings-form"][n].value]))'
        self.assertEqual(self.browser.run(fields, list(shown)), shown)
        self.browser.one('#settings-reset').click()
        self.browser.one('#settings [type=submit]').click()
        self.say('Once more', answers=2)
        self.assertFalse(meant.keys() & self.stand_in.bodies[-1].keys())

    def test_a_wrong_bias_is_explained(self):
        self.stand_in.answer = lambda _: ['Yes.']
        self.open()
        self.browser.one('#show-settings').click()
        self.browser.run('document.getElementById("settings-more").open = true')
        box = self.browser.one('#settings [name=logit_bias]')
        problem = self.browser.one('#logit_bias-problem')
        for text, message in {
                'the: 5': '“the: 5” is not a token id and its bias, such as 1734: -100.',
                '17 5': '“17 5” is not a token id and its bias, such as 1734: -100.',
                '17:': '“17:” is not a token id and its bias, such as 1734: -100.',
                '17: 101': 'The bias of token 17 must be a number from -100 to 100, not “101”.',
                '17: x': 'The bias of token 17 must be a number from -100 to 100, not “x”.',
                '17: 1, 017: 2': 'Token 17 has two biases.'}.items():
            self.browser.run('document.forms["settings-form"].logit_bias.select()')
            box.type(text)
            # The field may be hidden when the settings are applied.
            self.browser.run('document.getElementById("settings-more").open = false')
            self.browser.one('#settings [type=submit]').click()
            self.assertTrue(self.browser.run('return document.getElementById("settings").open'), text)
            self.assertEqual(problem.text, message)
            self.assertEqual(self.browser.run('return document.activeElement.name'), 'logit_bias')
        self.browser.run('document.activeElement.select()')
        box.type('17: 1')
        self.assertEqual(problem.text, '')
        self.browser.one('#settings [type=submit]').click()
        self.say('Hello')
        self.assertEqual(self.stand_in.bodies[-1]['logit_bias'], {'17': 1})

    def test_answers_can_have_a_json_schema(self):
        self.open(settings={'max_tokens': 20})  # an object that any name fits may never end
        self.browser.one('#show-settings').click()
        box = self.browser.one('#settings [name=schema]')
        box.type('{"type": ')
        self.browser.one('#settings [type=submit]').click()  # refused: it is not JSON
        self.assertTrue(self.browser.run('return document.querySelector("#settings").open'))
        self.assertEqual(self.browser.one('#schema-problem').text, 'This is not a JSON object.')
        box.type('"object"}')
        self.browser.one('#settings [type=submit]').click()
        self.say('Hello')
        self.assertEqual(self.stand_in.bodies[-1]['response_format']['json_schema']['schema'],
                         {'type': 'object'})
        self.assertIn('JSON', self.browser.one('#show-settings').text)
        # Without a schema the box below asks for any object.
        self.browser.one('#show-settings').click()
        self.browser.one('#settings-reset').click()
        self.browser.one('#settings [name=any_object]').click()
        self.browser.one('#settings [name=max_tokens]').type('20')
        self.browser.one('#settings [type=submit]').click()
        self.say('Hello')
        self.assertEqual(self.stand_in.bodies[-1]['response_format'], {'type': 'json_object'})
        self.browser.one('#show-settings').click()
        self.assertTrue(self.browser.run('return document.forms["settings-form"].any_object.checked'))

    def test_the_system_prompt_has_a_place_of_its_own(self):
        self.stand_in.answer = lambda _: ['Yes.']
        self.open(settings={'temperature': 0})
        self.assertEqual(self.browser.one('#system summary').text, 'System prompt none')
        self.browser.one('#system summary').click()
        self.browser.one('#system-text').type('Answer in French.')
        self.say('Hello')
        self.assertEqual(self.stand_in.bodies[-1]['messages'][0],
                         {'role': 'system', 'content': 'Answer in French.'})
        self.assertEqual(self.stand_in.bodies[-1]['temperature'], 0)
        # Sampling settings leave the system prompt alone.
        self.browser.one('#show-settings').click()
        self.browser.one('#settings [name=top_k]').type('5')
        self.browser.one('#settings [type=submit]').click()
        self.browser.open(self.stand_in.url + '/')
        self.browser.wait('return document.querySelector(".message")')
        self.assertIn('Answer in French.', self.browser.one('#system summary').text)
        self.browser.one('#new').click()
        self.say('Again')
        self.assertEqual(self.stand_in.bodies[-1]['messages'][0]['content'], 'Answer in French.')
        self.assertEqual(self.stand_in.bodies[-1]['top_k'], 5)
        self.browser.press('Alt', 'p')
        self.assertEqual(self.browser.run('return document.activeElement.id'), 'system-text')
        # The conversation is stored when the field loses focus, by any means, but not at each key.
        stored = ('return Object.entries(localStorage).filter('
                  '([key, text]) => key.startsWith("tokamak.conversation.") &&'
                  ' JSON.parse(text).settings.system === args[0]).length')
        replace = "document.querySelector('#system-text').select()"
        for text, leave in {'Blur': lambda: self.browser.run('document.activeElement.blur()'),
                            'New': lambda: self.browser.press('Alt', 'n'),
                            'Reload': lambda: self.browser.open(self.stand_in.url + '/')}.items():
            if text == 'Reload':
                self.say('Once more')
                self.assertEqual(self.stand_in.bodies[-1]['messages'][0]['content'], 'New')
            self.browser.press('Alt', 'p')
            self.browser.run(replace)
            self.browser.press('Delete')
            self.browser.type(text)
            self.assertEqual(self.browser.run('return document.querySelector("#system-short")'
                                              '.textContent'), text)
            self.assertEqual(self.browser.run(stored, text), 0)
            leave()
            self.assertEqual(self.browser.run(stored, text), 1, text)
        self.browser.wait('return document.querySelectorAll(".message.assistant").length === 1')
        self.browser.press('Alt', 'p')
        self.browser.run('document.activeElement.select()')
        self.browser.press('Delete')
        self.say('Without', answers=2)
        self.assertEqual(self.stand_in.bodies[-1]['messages'][0]['role'], 'user')

    def test_reasoning_is_shown_above_the_answer_and_not_sent_back(self):
        thoughts = ['They say\n', '<b>hello</b>', ' *to me*.']
        self.stand_in.answer = lambda _: [{'role': 'assistant', 'reasoning_content': thoughts[0]},
                                          *({'reasoning_content': t} for t in thoughts[1:]),
                                          2, 'Hello', ' you.']
        self.open()
        self.browser.one('#input').type('Hi')
        self.browser.press('Enter')
        text = 'document.querySelector(".reasoning div").textContent'
        self.browser.wait(f'return document.querySelector(".reasoning") && {text} === args[0]',
                          ''.join(thoughts), what='it comes while the answer does not')
        self.assertEqual(len(self.browser.all('.message.assistant .pending')), 1)
        self.browser.run('document.querySelector(".reasoning summary").focus()')
        self.browser.press('Enter')
        self.browser.wait(ENDED, 1, what='the answer has ended')
        self.assertTrue(self.browser.run('return document.querySelector(".reasoning").open'))
        self.assertEqual(self.browser.one('.reasoning div').text, ''.join(thoughts))
        self.assertEqual(self.browser.one('.message.assistant .body').text, 'Hello you.')
        self.stand_in.answer = lambda _: ['No thoughts.']
        self.say('Again', answers=2)
        self.assertEqual([m['content'] for m in self.stand_in.bodies[-1]['messages']],
                         ['Hi', 'Hello you.', 'Again'])
        self.assertNotIn('reasoning', json.dumps(self.stand_in.bodies[-1]))
        self.browser.open(self.stand_in.url + '/')
        self.browser.wait('return document.querySelectorAll(".message.assistant").length === 2')
        shown = self.browser.run('return [...document.querySelectorAll(".reasoning")].map('
                                 '(e) => [e.hidden, e.open, e.lastChild.textContent])')
        self.assertEqual(shown, [[False, False, ''.join(thoughts)], [True, False, '']])

    def test_an_error_is_shown_and_another_try_works(self):
        self.open(settings={'max_tokens': 5})
        self.stand_in.paths['/v1/chat/completions'] = (
            400, {'error': {'message': 'messages: too <b>long</b>'}})
        self.say('Hello')
        self.assertIn('too <b>long</b>', self.browser.one('.failed').text)
        del self.stand_in.paths['/v1/chat/completions']
        self.browser.one('[title="Another answer"]').click()
        self.browser.wait(ENDED, 1)
        self.assertEqual(self.browser.all('.failed'), [])
        self.assertEqual(len(self.messages()[1]['versions']), 1)

    def test_a_broken_stream_says_so(self):
        def answer(_):
            yield 'half an ans'
            raise BrokenPipeError
        self.stand_in.answer = answer
        self.open()
        self.say('Hello')
        self.assertIn('ended before', self.browser.one('.failed').text)
        self.assertIn('half an ans', self.browser.one('.message.assistant .body').text)


class Key(PageTest):
    def test_the_page_loads_without_a_key_and_asks_for_one(self):
        self.stand_in.key = 'secret'
        self.open(settings={'max_tokens': 5})
        self.browser.wait('return document.getElementById("key").open')
        self.browser.type('wrong')
        self.browser.press('Enter')
        self.browser.wait('return document.getElementById("key").open && '
                          'document.getElementById("key-text").textContent.includes("not accept")')
        self.browser.type('secret')
        self.browser.press('Enter')
        self.browser.wait('return document.getElementById("model").textContent')
        self.say('Hello')
        self.assertGreater(len(self.messages()[1]['versions'][0]['content']), 0)
        stored = self.browser.run('return [sessionStorage["tokamak.key"], localStorage["tokamak.key"]]')
        self.assertEqual(stored, ['secret', None])

    def test_with_the_real_server(self):
        with tempfile.NamedTemporaryFile('w') as keys:
            keys.write('secret\n')
            keys.flush()
            with Server('--api-key-file', keys.name) as server:
                self.browser.open(server.url + '/')
                self.browser.wait('return document.getElementById("key").open')
                self.browser.type('secret')
                self.browser.press('Enter')
                self.browser.wait('return document.getElementById("model").textContent')
                self.browser.open('about:blank')
                for url in self.browser.requested():
                    self.assertTrue(url.startswith((server.url, 'about:')), url)


SHOWN_BLOCKS = '''return Object.fromEntries([...document.querySelectorAll('[data-count]')].map(
    (e) => [e.dataset.count, Number(e.textContent.replaceAll(',', ''))]))'''


SHOWN_RANKS = '''const section = document.querySelector('section[aria-label="Ranks"]');
    return section.hidden ? 'hidden'
                          : [...section.querySelectorAll('.lane')].map((e) => e.ariaLabel)'''


class Engine(PageTest):
    def test_a_state_is_shown(self):
        self.stand_in.paths['/debug/state'] = (200, STATE)
        self.open()
        self.browser.wait('return document.querySelector(".lane")')
        self.assertEqual(self.browser.run(SHOWN_BLOCKS),
                         {'one': 5, 'two': 2, 'many': 2, 'cached': 3, 'free': 8})
        label = self.browser.one('canvas').label
        for part in ('20 KV blocks', '9 in use', '4 of them shared', '3 cached', '8 free'):
            self.assertIn(part, label)
        text = self.browser.one('#engine').text
        for part in ('25 %', '123', '6.5 of 13 GB/s, 50 %', '2 running, 1 waiting, 1 paused', '70/100', '…cmpl-3 · paused',
                     'In host memory: 1 of 10 blocks', 'cancelled', '9 of 20 in use'):
            self.assertIn(part, text)
        self.assertIn('75 % of 60 drafts accepted (by place in the step: 90 %, 45 %); about 1.5 s saved', text)
        # A cell of each kind has the legend's color.
        for cell, kind in ((0, 'one'), (5, 'two'), (8, 'many'), (9, 'cached'), (12, 'free')):
            pixel, swatch = self.browser.run('''
                const [cell, kind] = args;
                const canvas = document.querySelector('canvas');
                const context = canvas.getContext('2d');
                const size = 12 * devicePixelRatio;
                const columns = Math.floor(canvas.width / size);
                const x = (cell % columns) * size + 3, y = Math.floor(cell / columns) * size + 3;
                const pixel = [...context.getImageData(x, y, 1, 1).data].slice(0, 3);
                const colour = getComputedStyle(document.querySelector('.legend .' + kind));
                return [pixel, colour.backgroundColor]''', cell, kind)
            self.assertEqual(pixel, [int(v) for v in re.findall(r'\d+', swatch)[:3]], kind)
        self.assertEqual(len(self.browser.all('.tree rect')), 3)  # the root holds no block

    def test_chat_works_without_it(self):
        for status in (401, 403, 404, 500):
            self.stand_in.paths['/debug/state'] = (status, {'error': {'message': 'no'}})
            self.open(settings={'max_tokens': 4})
            self.browser.wait('return !document.getElementById("engine-note").hidden')
            self.say('Hello')
            self.assertGreater(len(self.messages()[1]['versions'][0]['content']), 0)
        self.stand_in.paths['/debug/state'] = (200, {'surprise': 1})
        self.open(settings={'max_tokens': 4})
        self.browser.wait('return !document.getElementById("engine-note").hidden')
        self.say('Hello')
        self.browser.open('about:blank')
        self.assertIn('state.engine', self.browser.log()[-1]['message'])  # for debugging

    def test_it_is_asked_only_while_it_is_seen(self):
        self.stand_in.paths['/debug/state'] = (200, STATE)
        asked = ('return performance.getEntriesByType("resource")'
                 '.filter((e) => e.name.endsWith("/debug/state")).map((e) => e.startTime)')
        self.open()
        times = self.browser.wait(asked + '.length > 8 && ' + asked[7:], what='it was asked')
        # Four requests per second: five in a row take a second, up to the timers' precision.
        self.assertGreater(min(b - a for a, b in zip(times, times[4:])), 900)
        self.browser.one('#close-engine').click()
        self.browser.run('return new Promise((f) => setTimeout(f, 300))')
        before = len(self.browser.run(asked))
        self.browser.run('return new Promise((f) => setTimeout(f, 1500))')
        self.assertEqual(len(self.browser.run(asked)), before)

    def test_the_block_map_is_what_the_engine_says(self):
        status, state = self.server.request('/debug/state')
        if status == 404:
            self.skipTest('this build has no /debug/state')
        self.assertEqual(state['version'], 1)
        self.open(settings={'max_tokens': 60})
        # Keeps the page's data, to compare with what the page shows.
        self.browser.run('''
            const real = window.fetch;
            window.fetch = async (path, ...rest) => {
              const response = await real(path, ...rest);
              if (path === '/debug/state') window.state = await response.clone().json();
              return response;
            };''')
        self.say('Hello')
        self.say('And now something longer, please.', answers=2)
        self.server.wait_until(lambda h: h['running'] == 0, 'nothing runs')
        self.browser.run('window.state = null')
        shown = self.browser.wait('if (!window.state || window.state.engine.running) return false;'
                                  'await new Promise((f) => setTimeout(f, 50));' + SHOWN_BLOCKS)
        group = self.server.request('/debug/state')[1]['kv']['groups'][0]
        self.assertEqual(sum(shown.values()), group['total'])
        self.assertEqual(shown['free'], group['free'])
        self.assertEqual(shown['cached'], group['cached'])
        self.assertEqual(shown['one'] + shown['two'] + shown['many'], group['referenced'])
        self.assertGreater(shown['cached'], 0)
        self.assertEqual(state['ranks'], [])
        self.assertEqual(self.browser.run(SHOWN_RANKS), 'hidden')
        # Idle with a cache: nothing is in use, and /health agrees.
        self.assertIn(f'0 of {group["total"]} in use', self.browser.one('#engine').text)
        health = self.server.health()
        self.assertEqual(health['total_blocks'], group['total'])
        self.assertEqual(health['cached_blocks'], shown['cached'])
        self.assertEqual(health['used_blocks'], group['referenced'])
        metrics = self.server.metrics()
        self.assertEqual(metrics['tokamak_kv_blocks_capacity'], sum(shown.values()))
        self.assertEqual(metrics['tokamak_kv_blocks_cached'], shown['cached'])
        self.assertEqual(metrics['tokamak_kv_blocks_used'],
                         shown['one'] + shown['two'] + shown['many'])


class Ranks(PageTest):
    @classmethod
    def start_server(cls):
        return Server('--num-blocks', '600', '--tp', '2', '--threads', '2')

    def test_each_rank_has_a_lane(self):
        self.open(settings={'max_tokens': 200})
        self.browser.one('#input').type('Count from one to a thousand in words.')
        self.browser.press('Enter')
        busy = 'const e = document.querySelectorAll(".lane .busy");' \
               'return e.length === 2 && [...e].every((piece) => piece.offsetWidth > 1)'
        self.browser.wait(busy, what='both ranks compute')
        lanes = self.browser.run(SHOWN_RANKS)
        self.assertEqual(len(lanes), 2)
        for i, lane in enumerate(lanes):
            self.assertRegex(lane, rf'^replica 0, stage 0, rank {i}: busy \d+ %, waits for other ranks '
                                   r'\d+ %, receives [\d.]+ [kM]?B/s$')
        self.browser.wait(ENDED, 1)
        metrics = self.server.metrics()
        for i in range(2):
            labels = f'{{replica="0",stage="0",rank="{i}"}}'
            self.assertEqual(metrics[f'tokamak_rank_steps_total{labels}'],
                             metrics['tokamak_engine_steps_total'])
            self.assertLess(metrics[f'tokamak_rank_wait_seconds_total{labels}'],
                            metrics[f'tokamak_rank_step_seconds_total{labels}'])


if __name__ == '__main__':
    page_support.main()
