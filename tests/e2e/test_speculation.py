#!/usr/bin/env python3
"""Through the real `openai` client: drafts change no answer, and are counted."""

import concurrent.futures
import re
import unittest
import urllib.request

import support

try:
    import openai
except ImportError:
    openai = None

PASSAGE = ('The ferry left the harbour at nine. The keeper of the lighthouse counted twelve sails, and '
           'wrote the number in his book. ')
# Goes on with the passage, so most drafts are right, and stops, penalties and choices come among them.
TEXT = PASSAGE + PASSAGE + 'The ferry left'
CHAT = [{'role': 'user', 'content': f'Repeat this text word for word: {PASSAGE}'}]

COMPLETIONS = [
    {'temperature': 0},
    {'temperature': 0, 'stop': [' sails']},
    {'temperature': 0, 'stop': ['unted', 'x y z'], 'logprobs': 2},
    {'temperature': 0.4, 'n': 3, 'logprobs': 0, 'seed': 5},
    {'temperature': 0.8, 'n': 2, 'stop': ['.'], 'seed': 6},
    {'temperature': 0, 'frequency_penalty': 0.3, 'presence_penalty': 0.2, 'logprobs': 1},
    {'temperature': 0.6, 'seed': 7, 'extra_body': {'repetition_penalty': 1.05, 'repeat_last_n': 9}},
    {'temperature': 0, 'logit_bias': {'260': 4}, 'n': 2, 'echo': True, 'logprobs': 1},
]
CHATS = [
    {'temperature': 0, 'logprobs': True, 'top_logprobs': 3},
    {'temperature': 0, 'stop': ['lighthouse']},
    {'temperature': 0.7, 'n': 3, 'seed': 8, 'frequency_penalty': 0.4},
]


def fields(options, **more):
    return {**options, 'extra_body': {'timings': True, **options.get('extra_body', {}), **more}}


def joined(stream):
    """Returns the text and the finish reason of each choice, and the timings."""
    texts, reasons, timings = {}, {}, None
    for piece in stream:
        timings = (piece.model_extra or {}).get('timings') or timings
        for choice in piece.choices:
            text = choice.text if hasattr(choice, 'text') else choice.delta.content
            texts[choice.index] = texts.get(choice.index, '') + (text or '')
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
    return texts, reasons, timings


class Asker:
    """A server, its client, and the timings of all answers."""

    def __init__(self, *flags):
        self.server = support.Server('--max-seqs', '4', *flags)
        self.client = self.server.client()
        self.model = self.client.models.list().data[0].id
        self.timings = []

    def complete(self, options, **more):
        answer = self.client.completions.create(model=self.model, prompt=TEXT, max_tokens=60,
                                                **fields(options, **more))
        self.timings.append(answer.model_extra['timings'])
        return answer

    def chat(self, options):
        answer = self.client.chat.completions.create(model=self.model, messages=CHAT, max_tokens=60,
                                                     **fields(options))
        self.timings.append(answer.model_extra['timings'])
        return answer

    def stream(self, options):
        texts, reasons, timings = joined(self.client.completions.create(
            model=self.model, prompt=TEXT, max_tokens=60, stream=True, **fields(options)))
        self.timings.append(timings)
        return texts, reasons

    def everything(self):
        """The choices of all requests, of which several run at once."""
        calls = ([(self.complete, options) for options in COMPLETIONS] +
                 [(self.chat, options) for options in CHATS] +
                 [(self.stream, options) for options in COMPLETIONS if not options.get('echo')])
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda call: call[0](call[1]), calls))
        return [a if isinstance(a, tuple) else [c.model_dump() for c in a.choices] for a in answers]

    def metrics(self):
        """The numbers of drafts and of accepted ones, each as a total and by position."""
        with urllib.request.urlopen(self.server.url + '/metrics', timeout=support.PATIENCE) as response:
            text = response.read().decode()
        def of(name):
            total = re.search(rf'^tokamak_spec_decode_num_{name}_tokens_total (\d+)', text, re.M)
            by_position = re.findall(
                rf'^tokamak_spec_decode_num_{name}_tokens_per_pos_total{{position="\d+"}} (\d+)', text, re.M)
            return int(total.group(1)), [int(count) for count in by_position]
        return of('draft'), of('accepted')


@unittest.skipIf(openai is None, 'the openai package is not there; run scripts/setup-test-refs')
class Speculation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.off, cls.on = Asker('--speculate', 'off'), Asker()
        cls.addClassCleanup(cls.off.server.__exit__)
        cls.addClassCleanup(cls.on.server.__exit__)

    def check_counts(self, timings):
        drafts, accepted = timings['draft_n_per_pos'], timings['draft_n_accepted_per_pos']
        self.assertEqual(sum(drafts), timings['draft_n'])
        self.assertEqual(sum(accepted), timings['draft_n_accepted'])
        self.assertEqual(len(accepted), len(drafts))
        for counts in (drafts, accepted):
            self.assertEqual(counts, sorted(counts, reverse=True))
        for some, of in zip(accepted, drafts):
            self.assertLessEqual(some, of)

    def test_drafts_change_no_answer_and_are_counted(self):
        expected, actual = self.off.everything(), self.on.everything()
        for number, (off, on) in enumerate(zip(expected, actual)):
            self.assertEqual(on, off, number)
        # Otherwise there would be no text to stop, and no choices to differ.
        stopped, choices = expected[1], [choice['text'] for choice in expected[3]]
        self.assertEqual(stopped[0]['finish_reason'], 'stop')
        self.assertGreater(len(stopped[0]['text']), 20)
        self.assertNotIn(' sails', stopped[0]['text'])
        self.assertGreater(len(set(choices)), 1)
        for timings in self.off.timings:
            self.assertEqual((timings['draft_n'], timings['draft_n_per_pos'], timings['draft_saved_ms']),
                             (0, [], 0))
        for timings in self.on.timings:
            self.check_counts(timings)
        self.assertGreater(sum(timings['draft_n_accepted'] for timings in self.on.timings), 50)
        # Nothing runs, so the counters are the sums of the answers' numbers.
        (drafts, drafts_at), (accepted, accepted_at) = self.on.metrics()
        for name, total, at in (('draft_n', drafts, drafts_at), ('draft_n_accepted', accepted, accepted_at)):
            self.assertEqual(sum(timings[name] for timings in self.on.timings), total)
            self.assertEqual(sum(at), total)
            for i, count in enumerate(at):
                self.assertEqual(count, sum(sum(t[name + '_per_pos'][i:i + 1]) for t in self.on.timings))
        self.assertEqual(self.off.metrics(), ((0, []), (0, [])))

    def test_a_request_can_be_without_drafts(self):
        options = {'temperature': 0, 'extra_body': {'ignore_eos': True}}
        without, with_drafts = self.on.complete(options, speculate=False), self.on.complete(options)
        self.assertEqual([c.model_dump() for c in without.choices],
                         [c.model_dump() for c in with_drafts.choices])
        timings = without.model_extra['timings']
        self.assertEqual((timings['draft_n'], timings['draft_n_per_pos']), (0, []))
        self.assertEqual(timings['steps'], without.usage.completion_tokens)
        # A step gives a token more than it accepts drafts. This prompt takes one step.
        timings = with_drafts.model_extra['timings']
        self.assertGreater(timings['draft_n_accepted'], 0)
        self.assertEqual(timings['steps'] + timings['draft_n_accepted'],
                         with_drafts.usage.completion_tokens)
        self.assertNotEqual(timings['draft_saved_ms'], 0)

    def test_settings_of_drafts(self):
        flags = ('--draft-tokens', '3', '--draft-tokens-min', '3')
        with support.Server(*flags) as server:
            client = server.client()
            answer = client.completions.create(
                model=self.on.model, prompt=TEXT, max_tokens=60, temperature=0,
                extra_body={'timings': True})
        self.assertEqual(answer.choices[0].text, self.off.complete({'temperature': 0}).choices[0].text)
        drafts = answer.model_extra['timings']['draft_n_per_pos']
        self.assertEqual(len(drafts), 3)
        self.assertEqual(len(set(drafts)), 1)  # three or none


if __name__ == '__main__':
    support.main()
