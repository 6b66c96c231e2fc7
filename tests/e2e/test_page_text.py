#!/usr/bin/env python3
"""Tests in headless Chromium how the page shows what a model writes, however hostile, and as it
grows."""

import html
import random

import page_support
from page_support import ENDED, PageTest

PAYLOADS = [
    '<script>window.xss = 1</script>',
    '<img src=x onerror="window.xss = 1">',
    '<img src="http://192.0.2.1/leak.png">',
    '![](http://192.0.2.1/leak.png)',
    '![x](javascript:window.xss=1)',
    '![x](data:text/html,<script>window.xss=1</script>)',
    '![x" onerror="window.xss=1](y)',
    '[x](javascript:window.xss=1)',
    '[x](JaVaScRiPt&colon;window.xss=1)',
    '[x](java\nscript:window.xss=1)',
    '[x](\x01javascript:window.xss=1)',
    '[x](data:text/html;base64,PHNjcmlwdD53aW5kb3cueHNzPTE8L3NjcmlwdD4=)',
    '[x](vbscript:x)',
    '[x](https://example.com" onmouseover="window.xss=1)',
    '[x](https://example.com "t\\" onclick=\\"window.xss=1")',
    '<javascript:window.xss=1>',
    '<a href="javascript:window.xss=1" id=a name=b>x</a>',
    '<svg onload="window.xss=1"><script>window.xss=1</script></svg>',
    '<svg><a xlink:href="javascript:window.xss=1"><text>x</text></a></svg>',
    '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 '
    'onerror=window.xss=1&gt;">',
    '<math href="javascript:window.xss=1">x</math>',
    '<style>@import "http://192.0.2.1/x.css"; body{display:none}</style>',
    '<p style="background:url(http://192.0.2.1/x)">x</p>',
    '<link rel=stylesheet href=http://192.0.2.1/x.css>',
    '<base href="http://192.0.2.1/">',
    '<meta http-equiv=refresh content="0;url=http://192.0.2.1/">',
    '<iframe src="javascript:window.xss=1"></iframe>',
    '<iframe srcdoc="<script>parent.xss=1</script>"></iframe>',
    '<object data="data:text/html,<script>window.xss=1</script>"></object>',
    '<form action="http://192.0.2.1/"><input name=getElementById><button>x</button></form>',
    '<video><source onerror="window.xss=1"></video>',
    '<details open ontoggle="window.xss=1">x</details>',
    '<template><img src=x onerror="window.xss=1"></template>',
    '<noscript><p title="</noscript><img src=x onerror=window.xss=1>">',
    '<x onfocus="window.xss=1" tabindex=0 autofocus>',
    '```"><img src=x onerror=window.xss=1>\ncode\n```',
    '```html\n<img src=x onerror=window.xss=1><script>window.xss=1</script>\n```',
    '``<img src=x onerror=window.xss=1>``',
    '# <img src=x onerror=window.xss=1>',
    '| <img src=x onerror=window.xss=1> | b |\n|---|---|\n| <script>window.xss=1</script> | y |',
    '- [ ] <img src=x onerror=window.xss=1>',
    '[x]: javascript:window.xss=1\n\n[x]',
    '&lt;script&gt;window.xss=1&lt;/script&gt;',
    '<!--><img src=x onerror=window.xss=1>-->',
    '<![CDATA[><img src=x onerror=window.xss=1>]]>',
    '<?xml ><img src=x onerror=window.xss=1>?>',
    '<scr<script>ipt>window.xss=1</scr</script>ipt>',
    '\x00<img src=x onerror=window.xss=1>',
    '$<img src=x onerror=window.xss=1>$',
    '\\(</span><img src=x onerror=window.xss=1>\\)',
    '\\[\n<script>window.xss=1</script>\n\\]',
    '$$\\text{<img src=x onerror=window.xss=1>}$$',
    '$\\href{javascript:window.xss=1}{x}$ $\\url{javascript:window.xss=1}$',
    '$\\includegraphics[height=1em]{http://192.0.2.1/leak.png}$',
    '$\\htmlStyle{position:fixed}{x} \\htmlData{x=y}{x} \\htmlClass{top}{x} \\htmlId{input}{x}$',
    '$\\color{red;background:url(http://192.0.2.1/x)}x \\fcolorbox{red}{url(//192.0.2.1/)}{x}$',
]

# Finds elements that answers must not contain. Excepts rendered formulas, where KaTeX writes MathML
# for screen readers, and spans and images with their own styles.
FOREIGN = '''
const tags = new Set(['A', 'BLOCKQUOTE', 'BR', 'BUTTON', 'CODE', 'DEL', 'DIV', 'EM', 'H1', 'H2', 'H3',
  'H4', 'H5', 'H6', 'HR', 'LI', 'OL', 'P', 'PRE', 'SPAN', 'STRONG', 'TABLE', 'TBODY', 'TD', 'TH',
  'THEAD', 'TR', 'UL']);
const attributes = new Set(['align', 'aria-label', 'class', 'href', 'rel', 'role', 'start',
  'tabindex', 'target', 'title', 'type']);
const inFormulas = /^(SPAN|svg|path|line|math|semantics|annotation|m[a-z]+)$/;
const found = [];
for (const e of document.querySelectorAll('.message.assistant .body *')) {
  const formula = e.closest('.katex') !== null;
  if (!(formula ? inFormulas.test(e.tagName) : tags.has(e.tagName))) found.push(e.outerHTML);
  for (const {name, value} of e.attributes) {
    if (!attributes.has(name) && !formula || /^on|href|src|^id$|^data-/.test(name) && e.tagName !== 'A' ||
        /url|fixed/.test(value) && name !== 'href') found.push(e.outerHTML);
  }
  if (e.tagName === 'A' && !/^(https?|mailto):/.test(e.href)) found.push(e.outerHTML);
}
return found'''


class HostileModel(PageTest):
    def check(self, payload):
        self.assertEqual(self.browser.run(FOREIGN), [], payload)
        self.browser.run('for (const e of document.querySelectorAll(".message.assistant .body *")) '
                         '{ e.dispatchEvent(new MouseEvent("mouseover", {bubbles: true})); }')
        self.assertIsNone(self.browser.run('return window.xss ?? null'), payload)

    def test_nothing_that_a_model_writes_runs_or_loads(self):
        """Each payload alone, at once and character by character."""
        self.open()
        self.browser.run('''
            const {MarkdownView} = await import('/page/markdown.js');
            const {colourCode} = await import('/page/code.js');
            window.view = async (text, step) => {
              const body = document.createElement('div');
              const article = document.createElement('article');
              article.className = 'message assistant';
              body.className = 'body markdown';
              article.append(body);
              document.getElementById('messages').replaceChildren(article);
              const view = new MarkdownView(body);
              for (let i = step; i < text.length; i += step) view.update(text.slice(0, i));
              view.finish(text);
              await colourCode(body);
            };
            await window.view('$x$', 9);''')
        self.browser.wait('return document.querySelector(".katex")', what='formulas are set')
        for payload in PAYLOADS:
            for text in (payload, f'Sure:\n\n{payload}\n\nDone.', f'- x\n  {payload}\n\n> {payload}'):
                for step in (1, 7, 10000):
                    self.browser.run('await window.view(...args)', text, step)
                    self.check(payload)

    def test_a_formula_cannot_stop_the_page_nor_cover_others(self):
        """Formulas that KaTeX would not finish, or render badly, are shown as source."""
        refused = ['\\edef\\a{xx}' + '\\edef\\a{\\a\\a}' * 40 + '\\a', '\\def\\a{\\a\\a}\\a',
                   '\\newcommand{\\a}{x^\\a}\\a', '\\let\\a=\\b', '\\ne' * 999,
                   'x^{' * 990 + 'x' + '}' * 990, 'x' * 5000, '\\nosuch', '{']
        self.stand_in.answer = lambda _: [
            '\\(\\raisebox{-3000em}{a}\\smash{\\raisebox{4em}{$\\rule{20em}{20em}$}}\\)\n\n'
            '$\\kern-3000em\\rule{20em}{20em}$\n\n$\\rule{3000em}{3000em}$\n\n\\[a=b\\]\n\n',
            *(f'\\[{source}\\]\n\n' for source in refused)]
        self.open()
        self.say('The question that nothing may cover')
        self.browser.wait('return document.querySelector(".katex")')
        self.assertEqual(self.browser.run(
            'return [...document.querySelectorAll(".math:not(:has(.katex))")].map((e) => e.textContent)'),
            refused)
        self.assertEqual(self.browser.run('return document.querySelectorAll(".math .katex").length'), 4)
        covered = self.browser.run('''
            document.getElementById('scroll').scrollTop = 0;
            const box = document.querySelector('.message.user .body').getBoundingClientRect();
            return document.elementsFromPoint(box.x + 40, box.y + box.height / 2)
                .some((e) => e.closest('.katex'))''')
        self.assertFalse(covered)
        wider = self.browser.run('const s = document.getElementById("scroll");'
                                 'return s.scrollWidth > s.clientWidth')
        self.assertFalse(wider)

    def test_through_the_whole_page(self):
        """All payloads in an answer, in the question, in the title, and after a reload."""
        text = '\n\n'.join(PAYLOADS)
        parts = [text[i:i + 11] for i in range(0, len(text), 11)]
        self.stand_in.answer = lambda _: [*({'reasoning_content': part} for part in parts), *parts]
        self.open()
        question = '<img src=x onerror=window.xss=1><script>window.xss=1</script>'
        self.say(question)
        self.check('all')
        self.assertEqual(self.browser.run('return document.querySelector(".reasoning div").innerHTML'),
                         html.escape(text, quote=False))
        self.assertEqual(self.browser.one('.message.user .body').text, question)
        self.assertTrue(question.startswith(
            self.browser.one('#conversations .open').text.rstrip('…')))
        self.browser.open(self.stand_in.url + '/')
        self.browser.wait('return document.querySelector(".message.assistant .body *")')
        self.check('all')
        for link in self.browser.run('return [...document.querySelectorAll(".body a")]'
                                     '.map((a) => [a.target, a.rel])'):
            self.assertEqual(link, ['_blank', 'noopener noreferrer nofollow'])

    def test_what_others_store_is_not_trusted(self):
        self.open()
        self.browser.run('''
            localStorage['tokamak.conversation.x'] = JSON.stringify({id: 'x', title: '<img src=x>',
              settings: {}, created: 1, updated: 2, messages: [{role: 'assistant', at: 0, versions:
              [{content: '<img src=x onerror=window.xss=1>', state: 'error', error: '<b>x</b>'}]}]});
            localStorage['tokamak.conversation.y'] = 'not JSON';
            localStorage['tokamak.conversation.z'] = '{"id": "z", "settings": null}';''')
        self.browser.open(self.stand_in.url + '/')
        self.browser.wait('return document.querySelector(".message.assistant")')
        self.check('stored')
        self.assertEqual(self.browser.one('.failed').text, '<b>x</b>')


DOCUMENT = '''# Title

A paragraph with *emphasis*, **strength**, `code` and a [link](https://example.com/a?b=c&d).
Its second line.

1. one

2. two
   - nested
   - list

     with a paragraph
3. three

| a | b |
|---|--:|
| 1 | 2 |

> quoted
> text

```python
def f(x):

    return "```" + x
\ttabbed
```

~~~
plain
~~~

Setext
------

Last paragraph: 1 < 2 & 3 > 2, ~~gone~~, <b>raw</b>.

- [ ] task
- [x] done

***

1986\\. A great year.
'''

# Formulas in context, and what KaTeX must receive; + marks displayed formulas.
FORMULAS = '''Inline \\(a_1 * b_1\\), $x_i*y_i$ and **$z$**, then $$n!$$ and \\[m\\] in a line.
\\[
a
= b
- c
+ d \\\\ * e
\\]
After it.

$$ \\int_0^1 f(x)\\,dx = 1 $$.

1. In a list: $k$

   \\[ l \\]
2. > \\[ quoted \\]

| \\(t\\) | $u$ |
|---|---|
| $v$ | w |

$$
\\begin{aligned} p &= q \\\\ r &= s < 3 \\end{aligned}
$$
The end: $\\alpha$.
'''
SET = [
    'a_1 * b_1', 'x_i*y_i', 'z', '+n!', '+m', '+a\n= b\n- c\n+ d \\\\ * e', '+\\int_0^1 f(x)\\,dx = 1 .',
    'k', '+l', '+quoted', 't', 'u', 'v', '+\\begin{aligned} p &= q \\\\ r &= s < 3 \\end{aligned}',
    '\\alpha']

NO_FORMULAS = '''It costs $5 and that one $6. From $5-$10, US$5 to CA$6, ($7) or ($8), \\$9 and $.
`$x$` and `\\(x\\)`, $HOME/bin:$PATH, $5 or `x$`.

```sh
echo $x $y$ \\(z\\)
$$
```

    $$ indented $$

\\[never closed

\\(nor *this*

$$

$x'''


class Markdown(PageTest):
    def render(self, text, ends):
        return self.browser.run('''
            const {MarkdownView} = await import('/page/markdown.js');
            const [text, ends] = args;
            const element = document.createElement('div');
            const view = new MarkdownView(element);
            for (const end of ends) view.update(text.slice(0, end));
            view.finish(text);
            return element.innerHTML''', text, ends)

    def test_streaming_ends_as_rendering_at_once_does(self):
        self.open()
        whole = self.render(DOCUMENT, [])
        for sign in ('<h1>Title', '<em>', '<ol>', 'class="language-python"', '<td align="right">2',
                     '<h2>Setext', '<blockquote>', '&lt;b&gt;raw', '☑ done', '<hr>'):
            self.assertIn(sign, whole)
        self.assertEqual(self.render(DOCUMENT, list(range(1, len(DOCUMENT)))), whole)
        self.assertEqual(self.render(DOCUMENT.replace('\n', '\r\n'), list(range(1, 50))), whole)
        for seed in range(20):
            chance = random.Random(seed)
            ends = sorted(chance.sample(range(1, len(DOCUMENT)), chance.randint(1, 60)))
            self.assertEqual(self.render(DOCUMENT, ends), whole, f'seed {seed}')

    def test_formulas_are_set_by_our_own_katex_when_there_is_one(self):
        """KaTeX writes its source into its MathML."""
        self.open()
        self.stand_in.answer = lambda _: [NO_FORMULAS]
        self.say('Hello')
        self.assertEqual([url for url in self.browser.requested() if 'katex' in url.lower()], [])
        self.assertEqual(self.browser.run(
            'return [...document.querySelectorAll(".math")].map((e) => e.textContent)'), [])
        text = self.browser.one('.message.assistant .body').text
        for part in ('It costs $5 and that one $6. From $5-$10, US$5 to CA$6, ($7) or ($8), $9 and $.',
                     '$x$ and \\(x\\), $HOME/bin:$PATH, $5 or x$.', 'echo $x $y$ \\(z\\)\n$$',
                     '$$ indented $$', '[never closed', '(nor this', '$x'):
            self.assertIn(part, text)
        self.stand_in.answer = lambda _: [FORMULAS[i:i + 5] for i in range(0, len(FORMULAS), 5)]
        self.say('And now', answers=2)
        self.browser.wait('return document.querySelector(".katex") && document.fonts.status === "loaded"')
        given = self.browser.run('''
            return [...document.querySelectorAll('.math')].map((e) => (
                (e.querySelector('.katex-display') ? '+' : '') +
                e.querySelector('annotation').textContent.trim()))''')
        self.assertEqual(given, SET)
        self.assertEqual(len(self.browser.all('.math .katex-html')), len(SET))
        loaded = self.browser.run('return [...document.fonts].filter((f) => f.status === "loaded")'
                                  '.map((f) => f.family.replaceAll(\'"\', ""))')
        self.assertIn('KaTeX_Main', loaded)
        self.assertIn('KaTeX_Math', loaded)
        fetched = [url for url in self.browser.requested() if 'katex' in url.lower()]
        for part in ('/page/lib/katex.js', '/page/lib/katex.css', '/page/lib/fonts/KaTeX_Main-Regular.woff2'):
            self.assertIn(self.stand_in.url + part, fetched)
        self.assertLess(len(fetched), 12, fetched)

    def test_formulas_stay_while_more_text_comes(self):
        """Rendered formulas are not rendered again, and the result is the same as for the whole
        text at once."""
        self.open()
        self.render('$x$', [])
        self.browser.wait('const {katex} = globalThis; return katex')
        whole = self.render(FORMULAS, [])
        self.assertEqual(whole.count('class="katex"'), len(SET))
        self.assertEqual(self.render(FORMULAS, list(range(1, len(FORMULAS)))), whole)
        none = self.render(NO_FORMULAS, [])
        self.assertEqual(self.render(NO_FORMULAS, list(range(1, len(NO_FORMULAS)))), none)
        for seed in range(20):
            chance = random.Random(seed)
            ends = sorted(chance.sample(range(1, len(FORMULAS)), chance.randint(1, 60)))
            self.assertEqual(self.render(FORMULAS, ends), whole, f'seed {seed}')
        times = self.browser.run('''
            const {MarkdownView} = await import('/page/markdown.js');
            const set = globalThis.katex.__renderToDomTree;
            let times = 0;
            globalThis.katex.__renderToDomTree = (...given) => { ++times; return set(...given); };
            const view = new MarkdownView(document.createElement('div'));
            const text = 'Some $x$ and $y$ ' + 'with words '.repeat(50);
            for (let end = 1; end < text.length; ++end) view.update(text.slice(0, end));
            view.finish(text);
            globalThis.katex.__renderToDomTree = set;
            return times''')
        self.assertEqual(times, 2)

    def test_the_cost_is_linear_in_the_length(self):
        """Counts the characters that the parser sees, and looks for elements drawn twice."""
        self.open()
        count = '''
            const {MarkdownView} = await import('/page/markdown.js');
            const [text, step] = args;
            const lexer = globalThis.marked.lexer;
            let parsed = 0;
            globalThis.marked.lexer = (source, ...rest) => {
              parsed += source.length;
              return lexer(source, ...rest);
            };
            const element = document.createElement('div');
            const view = new MarkdownView(element);
            view.update(text.slice(0, 200));
            const first = element.firstElementChild;
            for (let end = 200; end < text.length; end += step) view.update(text.slice(0, end));
            view.finish(text);
            globalThis.marked.lexer = lexer;
            return [parsed, element.firstElementChild === first, element.children.length]'''
        for what, block in (('paragraphs', 'Some words of a paragraph, and more of them.\n\n'),
                            ('code', None)):
            ratios = []
            for n in (200, 800):
                text = block * n if block else 'x\n\n```c\n' + 'int x = 1;\n' * 4 * n + '```\n'
                parsed, same, children = self.browser.run(count, text, 5)
                self.assertTrue(same, what)
                self.assertEqual(children, n if block else 2)
                ratios.append(parsed / len(text))
            self.assertLess(ratios[1], 1.5 * ratios[0], f'{what}: {ratios}')

    def test_reading_is_not_disturbed(self):
        """A selection and a scrolled-up position stay while more text comes."""
        def answer(_):
            for i in range(60):
                yield f'Paragraph {i} with some words to read.\n\n'
            yield 'The open one begins '
            while not self.go_on:
                yield 0.02
            for i in range(300):
                yield f'word{i} '
                if i % 10 == 0:
                    yield 0.005
        self.go_on = False
        self.stand_in.answer = answer
        self.open()
        self.browser.one('#input').type('Go')
        self.browser.press('Enter')
        self.browser.wait('return document.querySelector(".body")?.parentNode.parentNode'
                          '.textContent.includes("The open one begins")')
        self.assertTrue(self.browser.run(
            'const s = document.getElementById("scroll");'
            'return s.scrollHeight - s.scrollTop - s.clientHeight < 5'), 'follows the end')
        self.browser.run('''
            const open = document.querySelector('.message.assistant .body').lastElementChild;
            getSelection().setBaseAndExtent(open.firstChild, 4, open.firstChild, 12);
            const scroll = document.getElementById('scroll');
            scroll.scrollTop = 100;
            await new Promise((f) => setTimeout(f, 100));''')
        self.go_on = True
        self.browser.wait(ENDED, 1)
        selected, top, button = self.browser.run(
            'return [String(getSelection()), document.getElementById("scroll").scrollTop, '
            '!document.getElementById("to-end").hidden]')
        self.assertEqual((selected, top, button), ('open one', 100, True))


if __name__ == '__main__':
    page_support.main()
