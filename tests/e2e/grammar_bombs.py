"""Grammars that would take exponential time or memory if they were expanded, for attack.py."""

import json

MEGABYTES = 256  # that a server's memory may grow by
MILLISECONDS = 100  # of its CPU time for each


def regexes():
    for n in (30, 99, 200, 300, 1000, 2000, 3000, 10000, 30000, 100000):
        yield '(' * n + 'a' + '){0,100}' * n
        yield '(' * n + 'a' + 'b?){0,1000}' * n
        yield '(' * n + 'a' + '|b){2,9}c' * n
        yield '(' * n + 'a' + ')*' * n + '('
        yield '(a{1,%d}){1,%d}{9,%d}' % (n, n, n)
        yield '[' * n
        yield 'a{' + '9' * n + '}'
        yield '(?=' * n + 'a' + ')' * n
    for n in (1000, 10000, 100000):
        yield '(a|b)*a(a|b){%d}' % n + '(a|b){%d}' % n * 9
        yield 'x{0,%d}' % n * 300
        yield '(.*a){%d}' % n
        yield '\\p{L}{%d}' % n * 20
    yield 'a{100000}{100000}{100000}'
    yield 'a' * (1 << 20)
    yield '(a|b)' * (1 << 18)
    yield '[a-z]+' * (1 << 18)
    yield 'é' * (1 << 19)


def schemas():
    def nested(opening, closing, n):
        return opening * n + '{}' + closing * n

    for n in (200, 300, 1000, 3000, 10000, 20000):
        yield nested('{"items": ', '}', n)
        yield nested('{"properties": {"a": ', '}}', n)
        yield nested('{"anyOf": [{}, ', ']}', n)
        yield nested('{"not": ', '}', n)
        yield json.dumps({'oneOf': [{'type': 'string', 'pattern': '^(a|b)*a(a|b){8}%d$' % i}
                                    for i in range(n)]})
        yield json.dumps({'type': 'string', 'allOf': [{'pattern': '(a|b)*a(a|b){%d}' % (i % 50)}
                                                      for i in range(n)]})
        yield json.dumps({'allOf': [{'patternProperties': {'b%d' % (98 * k + i): {}
                                                           for i in range(98)}} for k in range(n // 50)]})
        yield json.dumps({'properties': {'a' * (i % 90) + str(i): {} for i in range(n)},
                          'patternProperties': {'b' * 90 + str(i): {} for i in range(n)}})
        yield json.dumps({'type': 'array', 'minItems': n * 1000000, 'items': {'type': 'array',
                          'minItems': n * 1000000}})
        yield json.dumps({'type': 'string', 'minLength': n * 1000000, 'pattern': 'a'})
        yield json.dumps({'$ref': '#/d/0', 'd': {str(i): {'$ref': '#/d/%d' % ((i + 1) % n)}
                                                 for i in range(n)}})
        yield json.dumps({'allOf': [{'anyOf': [{'minLength': i}, {'pattern': 'a{%d}' % i}]}
                                    for i in range(n)]})
        yield json.dumps({'$ref': '#/d/0', 'd': {
            **{str(i): {'allOf': [{'$ref': '#/d/%d' % (i + 1)}, {'anyOf': [
                {'$ref': '#/d/%d' % (i + 1)}, {'minLength': i}]}]} for i in range(n)},
            str(n): {'type': 'string'}}})
    yield json.dumps({'type': 'string', 'pattern': 'a' * (1 << 20)})
    yield json.dumps({'type': 'object', 'patternProperties': {'(a|b)' * (1 << 17): {}}})
    yield '[' * (5 << 20)


def gbnf():
    for n in (100, 300, 1000, 3000, 10000, 30000, 100000):
        yield 'root ::= ' + '(' * n + '"a"' + '){0,100}' * n
        yield 'root ::= ' + '(' * n + '"a"' + ' "b"?){2,9}' * n
        yield 'root ::= "a"{%d}{%d}{%d}' % (n, n, n)
        yield 'root ::= r0\n' + '\n'.join('r%d ::= r%d r%d' % (i, i + 1, i + 1) for i in range(n))
        yield 'root ::= r0\n' + '\n'.join('r%d ::= r%d' % (i, (i + 1) % n) for i in range(n))
        yield 'root ::= root root | root' + ' | root "a"' * n + ' missing'
        yield 'root ::= [' + 'a-' * n
        yield 'root ::= ' + '"a" | ' * n
        yield 'root ::= "' + 'a' * n
        yield 'root ::= ' + '[^a]{1000} ' * n + 'missing'
    yield 'root ::= "' + 'a' * (1 << 20) + '"'
    yield 'root ::= ' + '"ab" ' * (1 << 18)


BODIES = [('guided_regex', regexes), ('guided_json', schemas), ('guided_grammar', gbnf)]


def grammars(options, server, failures):
    """Sends each bomb. Those that are bounded after all may compile."""
    rss, refused, worst = server.rss_mb(), [], (0, '')
    for field, bombs in BODIES:
        for text in list(bombs())[::5 if options.small else 1]:
            name = f'{field} of {len(text)} bytes, {text[:60]}'
            body = {'prompt': 'a', 'max_tokens': 2, field: text}
            milliseconds = []
            for _ in range(1 if options.small else 3):
                start = server.cpu_seconds()
                status, answer = server.request('/v1/completions', body)
                milliseconds.append((server.cpu_seconds() - start) * 1e3)
            refused.append(400 <= status < 500)
            if status != 200 and not refused[-1]:
                failures.append(f'{name}: {status} {answer}')
            if refused[-1]:
                worst = max(worst, (min(milliseconds), name))
                if min(milliseconds) > MILLISECONDS and not options.small:
                    failures.append(f'{name}: {min(milliseconds):.0f} ms')
    grown = server.rss_mb() - rss
    if grown > MEGABYTES:
        failures.append(f'RSS grew by {grown:.0f} MB')
    return (f'{sum(refused)} of {len(refused)} grammars refused; the slowest took {worst[0]:.0f} ms of '
            f'CPU time: {worst[1]}; RSS grew by {grown:.0f} MB')
