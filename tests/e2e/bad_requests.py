"""Random requests with every field at its extremes, deep and huge JSON, damaged HTTP."""

import json

HEAD = ('POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n'
        'Content-Length: {}\r\n\r\n')
WRONG_TYPES = ['"x"', 'true', '[]', '{}', '1.5', '[[1]]']
HUGE = ['2147483648', '-2147483649', '9223372036854775808', '-9223372036854775809',
        '18446744073709551616', '1e19', '1' + '0' * 400]
# For each field, JSON texts that the server must refuse, naming the field.
BAD_VALUES = {
    'n': ['0', '-1', '129', *HUGE[:6], *WRONG_TYPES],
    'max_tokens': ['-1', *HUGE[:6], *WRONG_TYPES],
    'min_tokens': ['-1', *HUGE[:6], *WRONG_TYPES],
    'repeat_last_n': ['-2', '65536', *HUGE[:6], *WRONG_TYPES],
    'dry_allowed_length': ['-1', '1025', *HUGE[:6], *WRONG_TYPES],
    'dry_penalty_last_n': ['-2', '65536', *HUGE[:6], *WRONG_TYPES],
    'dry_sequence_breakers': ['"x"', '1', '{}', '[1]', '[""]', json.dumps(['x'] * 65),
                              json.dumps(['x' * 41])],
    'allowed_token_ids': ['1', '[-1]', '[2147483647]', '["x"]', '[[1]]'],
    'thinking_token_budget': ['-2', *HUGE[:6], *WRONG_TYPES],
    'top_k': ['-2', '-2147483648', *HUGE[:6], *WRONG_TYPES],
    'seed': ['18446744073709551616', '1e19', '1.5', '"x"', 'true', '[]', '{}'],
    'priority': ['1', '2147483647', *HUGE[:6], *WRONG_TYPES],
    'prompt_logprobs': ['-1', '21', '2147483647', *HUGE[:6], *WRONG_TYPES],
    **{field: [*values, '1e39', '-1e39', '1e308', '"x"', 'true', '[]', '{}'] for field, values in {
        'temperature': ['-0.001', '-1e-30'], 'top_p': ['0', '1.0001', '-1'],
        'dynatemp_range': ['-0.001'], 'dynatemp_exponent': ['-0.001'],
        'dry_multiplier': ['-0.001'], 'dry_base': ['0.999', '0', '-1'],
        'top_n_sigma': ['-0.001', '-2'], 'xtc_probability': ['-0.001', '1.0001'],
        'xtc_threshold': ['-0.001', '1.0001'],
        'min_p': ['-0.001', '1.0001'], 'typical_p': ['0', '-1', '2'],
        'repetition_penalty': ['0', '-1'], 'presence_penalty': ['-2.001', '2.001'],
        'frequency_penalty': ['-2.001', '2.001']}.items()},
    'stop': ['1', 'true', '{}', '[1]', '[""]', json.dumps(['x'] * 65), json.dumps(['x' * 5000])],
    'stop_token_ids': ['1', '[-1]', '[2147483647]', '["x"]', json.dumps([1] * 1025)],
    'logit_bias': ['1', '[]', '{"x": 1}', '{"-1": 1}', '{"0": 1000}', '{"999999999": 1}',
                   json.dumps({str(i): 1 for i in range(4097)})],
    'stream': ['1', '"true"', '[]'], 'cache_salt': ['1', '[]', json.dumps('x' * 70000)],
    'model': ['1', '[]', '"no such model"'], 'stream_options': ['1', '[]', '{}'],
}


def bad_value(generator):
    """Returns (path, body text, JSON path that the error must name)."""
    chat = generator.random() < 0.5
    field = generator.choice(list(BAD_VALUES))
    value = generator.choice(BAD_VALUES[field])
    start = '"messages": [{"role": "user", "content": "a"}]' if chat else '"prompt": "a"'
    path = '/v1/chat/completions' if chat else '/v1/completions'
    return path, '{%s, "%s": %s}' % (start, field, value), field


def bad_message(generator):
    index = generator.randrange(5)
    messages = [{'role': 'user', 'content': 'a'} for _ in range(index + 1)]
    messages[index] = generator.choice([
        1, None, [], {}, {'role': 'user'}, {'role': 'x', 'content': 'a'}, {'role': 1, 'content': 'a'},
        {'role': 'user', 'content': 1}, {'role': 'user', 'content': [{}]},
        {'role': 'user', 'content': [{'type': 'image_url'}]}])
    return '/v1/chat/completions', json.dumps({'messages': messages}), f'messages[{index}]'


def bad_shape(generator):
    depth = generator.choice([40, 1000, 100000])
    text = generator.choice([
        '[' * depth, '{"a":' * depth, '{"prompt": ' + '[' * depth + ']' * depth + '}',
        '{"prompt": "' + 'a' * generator.randrange(1000), '{"prompt": "\\ud800"}', '[]', 'null', '"', '',
        '{"prompt": [' + '1,' * generator.choice([10, 50000]) + ']}', '{"a": 1e999}', 'NaN',
        '{"prompt": ["a", ' + '[[]], ' * 100 + '"b"]}', '{"prompt": {}}', '{"messages": {}}',
        '{"prompt": ' + json.dumps(['a'] * 257) + '}',
        '{"messages": [' + '{},' * 5000 + '{}]}'])
    return generator.choice(['/v1/completions', '/v1/chat/completions']), text, None


class Damaged:
    """Bytes that are almost a request, each on its own connection."""

    GOOD = (HEAD.format('/v1/completions', 32) + '{"prompt": "a", "max_tokens": 1}').encode()

    @classmethod
    def make(cls, generator):
        data = bytearray(cls.GOOD)
        head = data.index(b'\r\n\r\n')
        for _ in range(generator.randrange(1, 6)):
            at = generator.randrange(head)
            action = generator.randrange(4)
            if action == 0:
                data[at] = generator.choice(b'\0\r\n\t :;,/%\xff\x7f')
            elif action == 1:
                del data[at:at + generator.randrange(1, 8)]
            elif action == 2:
                data[at:at] = data[at:at + generator.randrange(1, 40)]
            else:
                data[at:at] = generator.choice([b'\r\n', b'\n', b'\r\n ', b'Transfer-Encoding: chunked\r\n',
                                                b'Content-Length: 0\r\n', b'Host: a\r\n', b'\0'])
        return bytes(data)
