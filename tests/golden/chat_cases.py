"""Conversations for chat templates, and small templates for the template language."""

WEATHER = {'type': 'function', 'function': {
    'name': 'get_weather', 'description': 'Weather of a "city" today.',
    'parameters': {'type': 'object', 'properties': {
        'city': {'type': 'string', 'description': "The city's name"},
        'unit': {'type': 'string', 'enum': ['celsius', 'fahrenheit'], 'default': 'celsius'}},
        'required': ['city']}}}
BOOK = {'type': 'function', 'function': {
    'name': 'book', 'description': 'Réserver <b>une</b> table & more.\nSecond line.',
    'parameters': {
        'type': 'object', 'additionalProperties': False, '$defs': {'T': {'type': 'integer'}},
        'properties': {
            'seats': {'type': 'integer', 'minimum': 1, 'maximum': 18446744073709551615},
            'price': {'type': 'number', 'default': 1e-07, 'multipleOf': 0.5},
            'when': {'type': ['string', 'null'], 'default': None, 'format': 'date-time'},
            'smoking': {'type': 'boolean', 'default': False},
            'guests': {'type': 'array', 'items': {'type': 'object', 'properties': {
                'name': {'type': 'string'}, 'age': {'type': 'integer'}}, 'required': ['name']}},
            'place': {'anyOf': [{'type': 'string'}, {'type': 'null'}], 'title': 'Plaats'},
            'table': {'$ref': '#/$defs/T'}},
        'required': ['seats', 'guests']}}}
NOTHING = {'type': 'function', 'function': {'name': 'ping', 'description': 'Nothing to give.'}}
EMPTY = {'type': 'function', 'function': {
    'name': 'stop', 'description': '', 'parameters': {'type': 'object', 'properties': {}}}}
TOOLS = [WEATHER, BOOK]


def user(content):
    return {'role': 'user', 'content': content}


def assistant(content, **more):
    return {'role': 'assistant', 'content': content, **more}


def system(content):
    return {'role': 'system', 'content': content}


def call(name, arguments, identifier='call00001'):
    return {'id': identifier, 'type': 'function',
            'function': {'name': name, 'arguments': arguments}}


def result(content, identifier='call00001', name='get_weather'):
    return {'role': 'tool', 'tool_call_id': identifier, 'name': name, 'content': content}


UNICODE = ('Grüße, Ωμέγα, 漢字、한국어 👩‍👩‍👧 e\u0301 \u200b\u00a0nbsp "quotes" \'single\' \\back\\slash\\n '
           '<|im_start|> {{ not }} {% this %} {# nor #}\ttab\r\nline\x07 & <tag attr="1">')
ARGUMENTS = {'city': 'Zürich "ZH"', 'unit': 'celsius'}
DEEP = {'seats': 2, 'price': 12.5, 'when': None, 'smoking': True,
        'guests': [{'name': "O'Hara", 'age': 41}, {'name': '漢'}], 'place': ''}
ROUND = [user('Weather?'), assistant(None, tool_calls=[call('get_weather', ARGUMENTS)]),
         result('{"temperature": 21.5}')]

CASES = [
    {'name': 'user', 'messages': [user('Hello!')]},
    {'name': 'system', 'messages': [system('Be brief.'), user('Hello!')]},
    {'name': 'turns', 'messages': [system('Be brief.'), user('One'), assistant('Two'),
                                   user('Three'), assistant('Four'), user('Five')]},
    {'name': 'ends with assistant', 'messages': [user('One'), assistant('Two')]},
    {'name': 'unicode', 'messages': [system(UNICODE), user(UNICODE), assistant(UNICODE),
                                     user(UNICODE)]},
    {'name': 'empty', 'messages': [system(''), user(''), assistant(''), user('')]},
    {'name': 'spaces', 'messages': [system('  padded \n'), user('\n\n a \n'), assistant(' b\n\n'),
                                    user('\tc ')]},
    {'name': 'null', 'messages': [user('Hi'), assistant(None), user('Again')]},
    {'name': 'absent', 'messages': [user('Hi'), {'role': 'assistant'}, user('Again')]},
    {'name': 'none at all', 'messages': []},
    {'name': 'wrong order', 'messages': [assistant('I start'), user('a'), user('b')]},
    {'name': 'unknown role', 'messages': [user('a'), {'role': 'critic', 'content': 'no'}]},
    {'name': 'developer', 'messages': [{'role': 'developer', 'content': 'Rules.'}, user('Hi')]},
    {'name': 'late system', 'messages': [user('a'), system('Now in Dutch.'), user('b')]},
    {'name': 'parts', 'messages': [
        system([{'type': 'text', 'text': 'Be brief.'}]),
        user([{'type': 'text', 'text': 'One '}, {'type': 'text', 'text': 'two'}])]},
    {'name': 'image', 'messages': [
        user([{'type': 'image'}, {'type': 'text', 'text': 'What is it?'}])]},
    {'name': 'tools', 'tools': TOOLS, 'messages': [user('Weather?')]},
    {'name': 'tools and system', 'tools': TOOLS + [NOTHING, EMPTY],
     'messages': [system('Be brief.'), user('Weather?')]},
    {'name': 'no tools', 'tools': [], 'messages': [system('Be brief.'), user('Weather?')]},
    {'name': 'call', 'tools': TOOLS, 'messages': ROUND},
    {'name': 'call with text', 'tools': [WEATHER], 'messages': [
        system('Be brief.'), user('Weather?'),
        assistant('Let me see.', tool_calls=[call('get_weather', ARGUMENTS)]),
        result('{"temperature": 21.5}'), assistant('It is 21.5 degrees.'), user('Thanks')]},
    {'name': 'call with string', 'tools': [WEATHER], 'messages': [
        user('Weather?'),
        assistant('', tool_calls=[call('get_weather', '{"city": "Bern"}')]), result('21.5')]},
    {'name': 'two calls', 'tools': TOOLS, 'messages': [
        user('Weather, and a table?'),
        assistant('', tool_calls=[call('get_weather', ARGUMENTS, 'abcdefgh1'),
                                  call('book', DEEP, 'abcdefgh2')]),
        result('{"a": [1, 2.0, null]}', 'abcdefgh1'), result('done ✓', 'abcdefgh2', 'book'),
        assistant('Both done.'), user('And?'),
        assistant(None, tool_calls=[call('stop', {}, 'abcdefgh3')]),
        result('', 'abcdefgh3', 'stop')]},
    {'name': 'call without tools', 'messages': ROUND},
    {'name': 'call without id', 'tools': TOOLS, 'messages': [
        user('Weather?'),
        assistant('', tool_calls=[{'type': 'function', 'function': {
            'name': 'get_weather', 'arguments': ARGUMENTS}}]),
        {'role': 'tool', 'content': '21.5'}]},
    {'name': 'reasoning', 'messages': [
        user('1+1?'), assistant('2', reasoning_content='One and one\nis two.'), user('2+2?'),
        assistant('<think>\nFour.\n</think>\n\n4'), user('3+3?')]},
    {'name': 'thinking and call', 'tools': TOOLS, 'messages': [
        user('Weather?'),
        assistant('', thinking='I need a tool.', tool_calls=[call('get_weather', ARGUMENTS)]),
        result('{"temperature": 21.5}'), assistant('21.5', reasoning='Now I know.'), user('Ok')]},
    {'name': 'thinking off', 'variables': {'enable_thinking': False, 'thinking': False},
     'messages': [system('Be brief.'), user('Hello!')]},
    {'name': 'thinking on', 'tools': TOOLS,
     'variables': {'enable_thinking': True, 'thinking': True, 'reasoning_effort': 'high',
                   'thinking_budget': 512, 'preserve_thinking': True},
     'messages': ROUND + [assistant('Done', reasoning_content='Good.'), user('More')]},
    {'name': 'object results', 'tools': TOOLS, 'messages': ROUND[:2] + [
        result({'temperature': 21.5, 'text': 'ü'}), result([1, 'two', None])]},
]

VARIABLES = {
    'i': 7, 'f': 2.5, 's': 'Hello World', 'u': 'Grüße 漢字 👩', 'n': None, 't': True, 'e': '',
    'l': [3, 1, 2], 'd': {'b': 1, 'a': [True, None, 1.0], 'items': 'mine'},
    'rows': [{'name': 'Bo', 'age': 30, 'tags': ['x', 'y']}, {'name': 'al', 'age': 25, 'tags': []},
             {'name': 'Cy', 'age': 30}],
    'text': 'one\n two\n\nthree\n', 'html': '<a href="x">\'&\'</a>', 'big': 12345678901234567890,
}

EXPRESSIONS = r'''
1 + 2 * 3 ** 2 // 4 % 3 - -1
7 // 2, -7 // 2, 7 // -2, 7 % 3, -7 % 3, 7 % -3, 7.5 // 2, -7.5 % 2
1 / 2, 4 / 2, 2 ** 10, 2 ** -1, 2.0 ** 3, 2 ** 0.5, 10 ** 15
1e16, 1e15, 123456789012345678.0, 0.1 + 0.2, 1e-5, 0.0001, 1.5e300 * 1e10, -0.0, 100.0, 1_000
1 == 1.0, true == 1, "a" == 'a', [1, 2] == [1, 2.0], (1,) == [1], none == none, {} == {}
1 < 2 < 3, 1 < 2 > 5, 3 > 2 >= 2, "a" < "b", [1, 2] < [1, 3], "é" > "z"
"a" in "cat", "x" not in "cat", 1 in [1, 2], "b" in d, 3 in (1, 2), "a" in d and true
true and 0, 1 or 2, "" or "x", none and 1, not 1, not not "a", [] or {}
1 if true else 2, 1 if false, (1 if f > 2 else 3)
true, false, none, True, False, None
"a" ~ 1 ~ none ~ true ~ 1.5 ~ [1, "x"] ~ undefined_name
[1, 2.0, "three", none, true, {"k": "v'"}, (1,), (), ("a", 'b"')]
{"a": 1, 2: "b", 1.5: none, none: true, true: []}
"tab\tnew\\n \x41 \u00e9 \U0001F600 \101 \q \'"
'a' "b" 'c'
"it's", 'say "hi"', "both ' and \"", "\x00\x1f\x7f\u200b\ud7ff\U000e0001"
["it's", 'say "hi"', "both ' and \"", "\x00\x1f\x7f\u200b\u00a0\U000e0001é漢😀\n\t\r\\"]
l, l[0], l[-1], l[5], l[1:], l[:-1], l[::-1], l[::2], l[5:1], l[-2:], l[1:2:1]
s[0], s[-1], s[1:4], s[::-1], s[::2], s[-5:], s[99], u[::-1], u[1:3], u[-1], u[6:]
(1, 2, 3)[1:], range(10)[2:8:3]|list, "abc"[::-2]
d.b, d["b"], d.items(), d["items"], d.keys(), d.values(), d.get("x"), d.get("x", 5), d.nope
d.items is callable, d.a.0, l.0, s.0
rows[0].name, rows[0]["age"], rows[0].tags[1], rows[2].tags is defined
"%s and %d, %.2f %5d|%-5d|%05d %x %r %%" % ("a", 3, 2.345, 42, 42, 42, 255, "q")
"%(a)s-%(b)05.1f" % {"a": 1, "b": 2.25}, "%s" % "x", "%s" % 5, "%s" % [1], "%+d % d" % (1, 2)
"%e %g %G %c" % (12345.678, 1e-10, 1e20, "x"), "%10s|%-10s|" % ("ab", "cd"), "%.3s" % "abcdef"
"{} {1} {0}".format(1, 2) if false else "{0} {1} {0}".format(1, 2)
"{} {} {x} {y[k]} {z.b}".format(1, "two", x=3, y={"k": "v"}, z=d)
"{:>5}|{:<5}|{:^5}|{:*^7}|{:05d}|{:+}|{:,}|{:.2f}|{:e}|{:%}".format("a", "b", "c", "d", 42, 7, 1234567, 3.14159, 12345.6789, 0.25)
"{:x} {:#x} {:b} {:o} {:X} {:08.3f} {!r} {!s} {{}} {:{}}".format(255, 255, 5, 8, 255, 3.14159, "q", "q", 1, 5)
"{:5}|{:5}|{:5}".format("a", 1, 1.5), "{:.3}".format("abcdef"), "{:g}".format(0.00001)
s.upper(), s.lower(), s.title(), s.swapcase(), s.capitalize(), "straße".upper(), "ΑΣ".lower()
"  a b ".strip(), "xxaxx".strip("x"), "xya".lstrip("xy"), "axy".rstrip("yx"), "\u3000a\u00a0".strip()
"a,b,,c".split(","), " a  b ".split(), "a,b,c".split(",", 1), "a b c".rsplit(" ", 1), "".split(), "".split(",")
"a b c".split(" ", maxsplit=1), " a b  c ".split(none, 1), " a b  c ".rsplit(none, 1), text.splitlines(), text.splitlines(true)
s.startswith("He"), s.endswith(("ld", "x")), s.startswith("W", 6), s.find("o"), s.rfind("o"), s.find("zz"), s.count("l"), s.index("W")
s.replace("o", "0"), s.replace("o", "0", 1), "aaa".replace("", "-"), "abc".replace("b", "")
",".join(["a", "b"]), "".join([]), "-".join("abc"), s.partition(" "), s.rpartition("o"), s.partition("zz")
"a".center(5), "a".ljust(3) ~ "|", "a".rjust(3), "7".zfill(3), "-7".zfill(4), "ab".center(5, "*")
"abc".isalpha(), "123".isdigit(), "a1".isalnum(), " ".isspace(), "A".isupper(), "a".islower(), "Ab C".istitle(), "".isalpha(), "²".isdigit(), "½".isnumeric(), "é".isascii()
"prefix-x".removeprefix("prefix-"), "x.py".removesuffix(".py"), "x".removesuffix("")
l|length, s|length, u|length, d|length, undefined_name|length, range(5)|length
l|sort, l|sort(reverse=true), ["b", "A", "c"]|sort, ["b", "A", "c"]|sort(case_sensitive=true)
rows|sort(attribute="age,name")|map(attribute="name")|list, rows|sort(attribute="age", reverse=true)|map(attribute="name")|join(",")
d|dictsort, d|dictsort(reverse=true), {"B": 1, "a": 2}|dictsort, {"x": 2, "y": 1}|dictsort(by="value"), {"B": 1, "a": 2}|dictsort(true)
l|join(", "), rows|join("; ", attribute="name"), []|join, "abc"|join("-"), [1, none, true]|join("|")
l|first, l|last, []|first, s|first, s|last, d|first, range(3)|last
l|min, l|max, ["b", "A"]|min, rows|max(attribute="age"), []|max
l|sum, [1.5, 2]|sum, rows|sum(attribute="age"), [[1], [2]]|sum(start=[])
[1, 1.0, "a", "A", 2]|unique|list, rows|unique(attribute="age")|map(attribute="name")|list
l|reverse|list, s|reverse, (1, 2)|reverse|list, d|reverse|list
[1, 2, 3, 4, 5]|batch(2)|list, [1, 2, 3]|batch(2, "x")|list, [1, 2, 3, 4, 5]|slice(2)|list, [1, 2, 3]|slice(2, 0)|list
rows|groupby("age")|map("first")|list, rows|groupby("age")
rows|selectattr("age", "equalto", 30)|map(attribute="name")|list, rows|selectattr("tags")|list|length, rows|rejectattr("tags", "defined")|map(attribute="name")|list
[1, 2, 3, 4]|select("even")|list, [1, 2, 3, 4]|reject("gt", 2)|list, [0, 1, ""]|select|list, [0, 1]|reject|list
["a", "b"]|map("upper")|list, rows|map(attribute="tags", default="?")|list, [1, 2]|map("string")|join, rows|map(attribute="tags.0", default="?")|list
" a "|trim, "xax"|trim("x"), s|upper, s|lower, s|title, "hello-world (foo bar) it's"|title, s|capitalize, "a"|center(5)
s|replace("o", "0"), s|replace("o", "0", 1), 5|replace(5, "x"), html|e, html|escape|escape, html|safe, html|e|safe|upper
"<"|safe ~ "<", "<"|safe + "<", "<" + ">"|safe, ("<"|safe) % "x", "%s<"|safe % "<", "{}<"|safe.format("<"), ("<"|safe).replace("<", "<<"), ["<"|safe]
text|indent, text|indent(2, true), text|indent("> ", blank=true), "a"|indent, ""|indent(2, true)
"5"|int, "5.7"|int, "x"|int, "x"|int(9), "0x1f"|int(base=16), 5.9|int, -5.9|int, true|int, none|int, " 12 "|int, "1_000"|int
"5"|float, "x"|float, "x"|float(1.5), 5|float, "1e3"|float, "inf"|float, none|float
5.567|round(2), 2.5|round, 3.5|round, 2.675|round(2), 5|round, 1234|round(-2), 5.1|round(0, "ceil"), 5.9|round(method="floor"), -0.4|round
-5|abs, 5.5|abs, i|string, none|string, [1]|string, 3.0|string
undefined_name|default("x"), ""|default("x"), ""|default("x", true), none|default("x"), undefined_name|d(5), undefined_name|default
d|items|list, d.items()|list, d|list, "abc"|list, {"a": 1}|items|first, undefined_name|items|list
d|attr("items") is callable, d|attr("b"), s|attr("upper")()
"a b c"|wordcount, "hello world foo"|truncate(11), "hello world foo"|truncate(11, true), "hello world foo"|truncate(8, true, "..", 0), "%s-%s"|format("a", 1), "%(a)s"|format(a=2), "a b&ü/"|urlencode
d|tojson, l|tojson, s|tojson, u|tojson, none|tojson, true|tojson, 1.0|tojson, 1e20|tojson, big|tojson, html|tojson, (1, 2)|tojson, "\x00\x1f\x7f\"\\/\b\f"|tojson
d|tojson(indent=2), []|tojson(indent=2), {}|tojson(indent=2), [[], {}]|tojson(indent=1), d|tojson(indent=0), d|tojson(indent="--")
d|tojson(sort_keys=true), d|tojson(separators=(",", ":")), u|tojson(ensure_ascii=true), {1: 2, none: 3, true: 4, 1.5: 5}|tojson, d|tojson(indent=2, separators=(",", ": "))
i is defined, nope is defined, nope is undefined, n is none, i is none, t is boolean, i is boolean, i is integer, t is integer, f is float, i is number, t is number, s is string, i is string
l is iterable, i is iterable, s is iterable, l is sequence, d is sequence, s is sequence, i is sequence, d is mapping, l is mapping, nope is iterable, nope is sequence, d.items() is sequence, l|map("string") is sequence
i is odd, i is even, i is divisibleby 7, i is divisibleby(2), i is eq 7, i is ne 7, i is gt 6, i is lt(3), i is in [7], "a" is in "cat", i is ge 7, i is le 6, i is sameas i, true is sameas true, 1 is sameas 1.0
s is lower, "abc" is lower, "ABC" is upper, t is true, t is false, n is not none, i is not defined, "upper" is filter, "odd" is test, range is callable, i is callable, "x"|safe is escaped, "x" is escaped
range(5), range(5)|list, range(2, 5)|list, range(5, 0, -2)|list, range(0)|list, range(3, 10, 4)
dict(a=1, b=2), dict({"x": 1}, y=2), dict([("k", "v")])
nope, nope.x is defined
nope == nope, nope == none, nope ~ "x", not nope, nope or 1, [nope], nope is none
not nope is defined, -i ** 2, -2 ** 2, (-2) ** 2, - 5 + 3, +5, not true == false
i is defined and s is string, 1 if i is defined else 2, i == 7 and not n
l + [4], [1] * 3, "ab" * 2, 2 * "ab", (1,) + (2,), "a" + "b", [1] * -1
{"a": {"b": [1, {"c": "deep"}]}}.a.b[1].c, [[1, 2], [3]][0][1]
big, big ~ "", [big], {"k": big}, big is integer
"a\
b"
namespace(a=1).a, namespace({"a": 2}).a
strftime_now("%Y")|length
"x".nope is defined, s.upper is defined, l.append is defined, l.append is callable
{"k": 1}["k"], {"k": 1}.k, [1, 2,], {"a": 1,}, (1, 2,), (1), ()
"%d%%" % 5, "%s" % none, "%s %s" % ("a", [1, "b"]), "%-4s|" % "é"
l|count, [none]|first is none, ""|first is defined
1.0, 1.10, 3.14e2, 1e2, 5e-324, 1.7976931348623157e308, 0.1, 1/3, 2/3, 100000000000000000000.0
"a"|upper|lower ~ "B"|lower, ("a" ~ "b")|upper, "a" ~ "b"|upper, 1 + 2|float
true + true, true * 3, 5 - true, false / 2, 7 // 1.5, 7 % 2.5, -7.0 // 2, 1 == true, 0 == false
s.split(" ")[0].upper(), (s.split())[-1], s|list|length
none.x is defined, n.y is undefined, i.real is defined or true
d.update is defined, d.pop is defined
'\n' in text, "\u2028".splitlines(), "a\x0bb\x1cc".splitlines()
'{{ x }}', "{% y %}", '}}', "%}"
'''

STATEMENTS = [
    '{% for x in l %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ x }}'
    '{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}'
    '{{ loop.nextitem }};{% endfor %}',
    '{% for x in [] %}a{% else %}none{% endfor %}|{% for x in nope %}a{% else %}none{% endfor %}',
    '{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }}{{ loop.length }},'
    '{% else %}no{% endfor %}',
    '{% for x in l if x > 5 %}{{ x }}{% else %}no{% endfor %}',
    '{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}',
    '{% for k, (a, b) in [(1, (2, 3)), (4, (5, 6))] %}{{ k }}{{ a }}{{ b }} {% endfor %}',
    '{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}'
    '{% endif %}{{ x }}{% endfor %}',
    '{% for x in [1] %}{% break %}{% else %}else after break{% endfor %}',
    '{% for x in [1] %}{% continue %}{% else %}else after continue{% endfor %}',
    '{% for x in [1, 2] %}{{ loop.cycle("a", "b") }}{{ loop.changed(x // 2) }}{% endfor %}',
    '{% for x in [1] %}{% for y in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }}'
    '{{ loop.depth }}{{ loop.depth0 }}{% endfor %}',
    '{% for x in [{"n": 1, "c": [{"n": 2, "c": []}, {"n": 3}]}] recursive %}{{ x.n }}'
    '{{ loop.depth }}{% if x.c %}({{ loop(x.c) }}){% endif %}{% endfor %}',
    '{% set x = 1 %}{% for y in [1, 2] %}{% set x = x + y %}{{ x }}{% endfor %}{{ x }}',
    '{% set ns = namespace(x=1) %}{% for y in [1, 2] %}{% set ns.x = ns.x + y %}{% endfor %}'
    '{{ ns.x }}{{ ns.y is defined }}{{ ns["x"] }}',
    '{% set ns = namespace(found=false) %}{% for x in l if not ns.found %}{% set ns.found = true %}'
    '{{ x }}{% endfor %}',
    '{% if false %}{% set x = 1 %}{% endif %}{{ x is defined }}{% if true %}{% set x = 2 %}'
    '{% endif %}{{ x }}',
    '{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}',
    '{% set x %}  a{{ 1 }} {% endset %}[{{ x }}]{% set y | upper | trim %} b {% endset %}[{{ y }}]',
    '{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, c=5) }}'
    '{{ m(b=1, a=0) }}{{ m() }}',
    '{% macro m(a) %}{{ varargs }}{{ kwargs }}{{ a }}{% endmacro %}{{ m(1, 2, 3, k=4) }}{{ m() }}',
    '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}',
    '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}',
    '{% macro m(a) %}[{{ caller(a) }}]{% endmacro %}{% call(x) m(5) %}got {{ x }}{% endcall %}',
    '{% macro m() %}{{ caller() if caller else "none" }}{% endmacro %}{{ m() }}'
    '{% call m() %}yes{% endcall %}',
    '{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}',
    '{% macro a() %}{{ x }}{{ b() }}{% endmacro %}{% set x = 3 %}{% macro b() %}b{% endmacro %}'
    '{{ a() }}',
    '{% macro m() %}{% set i = 100 %}{{ i }}{% endmacro %}{{ m() }}{{ i }}',
    '{% macro m(x) %}{{ x is string }}{% endmacro %}{% set r = m("<") %}{{ r is string }}{{ r|e }}',
    '{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}',
    '{% filter upper %}a{{ s }}{% endfilter %}{% filter replace("a", "b")|upper %}aa{% endfilter %}',
    '{% with a = 1, b = i %}{{ a }}{{ b }}{% set c = 5 %}{% endwith %}{{ a }}{{ c is defined }}',
    '{% generation %}x{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}',
    '{% if 0 %}a{% elif "" %}b{% elif [] %}c{% else %}d{% endif %}',
    '{% if n is none and not t %}a{% elif i > 5 %}b{% endif %}',
    'a\n  {% if true %}  \n  b\n  {% endif %}\nc\n',
    'a {%- if true -%}  b  {%- endif -%} c',
    'a\n  {%+ if true +%}\n  b\n {%+ endif %}\nc',
    'a\n  {{- " x " -}}  \n  b {{ 1 }} \n',
    '  {# c #}\nx\n  {#- d -#}  \ny {# e #} z\n{# multi\nline #}\nw',
    '{% raw %}\n {{ x }} {% if %}\n{% endraw %}\na',
    '  {%- raw -%}  {{ x }}  {%- endraw -%}  a',
    '\n\nfirst\r\nsecond\rthird\n\n',
    '{% set x = 1 -%}\n\n  {% set y = 2 %}\n  {{ x }}\n\t{% if true %}y{% endif %}\nz',
    '{{ "a\nb" }}\n\n{{ 1 }}\n',
    '{{ {"a": {"b": 1}}.a }}{{ {"x": {}} }}',
    '{{ "}}" }}{% if "%}" %}ok{% endif %}',
    '{%for x in l%}{{x}}{%endfor%}{%set y=1%}{{y}}',
    '{% if x is defined %}{{ 1 | nofilter }}{% endif %}ok',
    '{{ 1 | nofilter if false else 2 }}',
    '{{ raise_exception("stop: " ~ i) }}',
    '{{ nope.x }}', '{{ nope() }}', '{{ nope[0] }}', '{{ nope + 1 }}', '{{ nope < 1 }}',
    '{{ d.nope.x }}', '{{ none.x.y }}', '{{ n[0] }}|', '{{ n[1:] }}', '{{ 1 / 0 }}', '{{ 1 + "a" }}',
    '{{ "a" + 1 }}', '{{ [1] + (2,) }}', '{{ 1 < "a" }}', '{{ 1 in 5 }}', '{{ 1 in "a" }}',
    '{{ {}[[]] }}|', '{{ [] in {} }}', '{{ {[]: 1} }}', '{{ l|nofilter }}', '{{ l is notest }}',
    '{{ l.append(1) }}', '{{ d.pop("b") }}', '{{ "".__class__ }}', '{{ s.__class__.__mro__ }}',
    '{% set d.b = 1 %}', '{% set s.x = 1 %}', '{% for x in 5 %}{% endfor %}',
    '{% for x in n %}{% endfor %}', '{% for a, b in [1] %}{% endfor %}',
    '{% for a, b in [(1, 2, 3)] %}{% endfor %}', '{% if %}', '{% endif %}', '{{ 1 +', '{{ }}',
    '{% for %}{% endfor %}', '{% unknown %}', '{{ "a }}', '{# never', '{{ 1 $ 2 }}', '{{ (1 }}',
    '{{ [1, 2 }}', '{% set 1 = 2 %}', '{% set true = 2 %}', '{{ a b }}', '{% if true %}',
    '{% macro m(a=1, b) %}{% endmacro %}', '{{ f(a=1, 2) }}', '{{ x is a is b }}',
    '{{ l|sort(attribute="x") }}', '{{ [1, "a"]|sort }}', '{{ nope|tojson }}', '{{ (l|map("string"))|tojson }}',
    '{{ "%d" % "a" }}', '{{ "%s %s" % ("a",) }}', '{{ "%s" % ("a", "b") }}', '{{ "%d" % none }}',
    '{{ "{}".format() }}', '{{ "{x}".format() }}', '{{ "{".format() }}', '{{ "{:q}".format(1) }}',
    '{{ "a".split("") }}', '{{ "a".index("b") }}', '{{ l.index(9) }}', '{{ "a".nope() }}',
    '{{ range(100001) }}', '{{ range(100000)|length }}', '{{ "ab".join([1]) }}', '{{ l() }}',
    '{{ l|join(",") if l else "x" }}', '{{ none|length }}', '{{ 5|first }}', '{{ 5|list }}',
    '{{ l|batch }}', '{{ s|int("x", base=99) }}', '{{ [[1, 2]]|map("last")|list }}',
    '{% set g = l|map("string") %}{{ g|list }}{{ g|list }}',
    '{% set g = d|items %}{% for k, v in g %}{{ k }}{% endfor %}{{ g|list }}',
    '{% set x = l|select %}{{ x|first }}{{ x|list }}',
    '{% for c in u %}[{{ c }}]{% endfor %}', '{% for k in d %}{{ k }}{% endfor %}',
    '{% for x in (1, 2) %}{{ x }}{% endfor %}{% for x in range(3) %}{{ x }}{% endfor %}',
    '{{ ns }}{% set ns = namespace() %}{{ ns.a }}{% set ns._x = 1 %}',
    '{{ "a" if nope.x is defined else "b" }}', '{{ (nope or {}).x }}|{{ nope|default({})|length }}',
    '{{ messages|length }}{{ tools is none }}{{ documents is none }}{{ tools is defined }}'
    '{{ add_generation_prompt }}{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}',
    '{% set m = messages[1:] if messages and messages[0].role == "system" else messages %}{{ m }}',
    '{%- set x = "a" -%}\n{{- x -}}\n{%- if x -%}\n yes \n{%- endif -%}',
    '{% set x = [1,\n 2,\n 3] %}{{\n x\n }}', '{{ s\n|upper }}', '{% if t: %}colon{% endif %}',
    '{%- for x in l %}\n{{ x }}\n{%- endfor %}\n', '{{ l[:2]|string ~ l[2:]|string }}',
    '{% set a = b = 1 %}', '{% macro m() %}{% break %}{% endmacro %}', '{% continue %}',
    '{% for x in l %}{% set y %}{% break %}{% endset %}{% endfor %}ok',
    '{{ [1,2,3]|map("string")|map("upper")|join }}', '{{ d.items()|list|first|last }}',
    '{% set q = d.items() %}{{ q }}{{ d.keys() }}{{ d.values()|list }}{{ d.items()|length }}',
    '{{ "x" * 3 ~ [0] * 2 }}{{ -1 * "x" }}|', '{{ loop is defined }}{{ caller is defined }}',
    '{% set ns = namespace(o="", p="") %}{% macro m() %}{{ ns.o }}{% set ns.o = ns.o ~ "!" %}'
    '{% endmacro %}{% for i in range(4) %}{% set ns.p = ns.o %}{% set ns.o = ns.o ~ "x" ~ m() ~ i %}'
    '{{ ns.o }}|{{ ns.p }};{% endfor %}',
    '{% set o = "a" %}{% for i in range(3) %}{% set o = o + "b" %}{{ o }}{% set o = o + "c" + "d" %}'
    '{% set q = o %}{% set o = o ~ 1 %}{{ o }}{{ q }}{{ o|length }}{% endfor %}{{ o }}',
    '{% set o = "é" %}{% set o = o + ("<"|safe) + "<" %}{{ o }}{% set o = o + "&" %}{{ o }}',
    '{% set o = "a" %}{% set o = o + 1 %}', '{% set o = "a" %}{% set o = o + nope %}',
    '{% set o = "a" ~ i %}{% set o = o + "b" + nope %}', '{% set o = "a" ~ i %}{% set o = o + none %}',
    '{% set o = [1] %}{% set o = o + [2] %}{% set o = o ~ 3 %}{% set o = o ~ o ~ o %}{{ o }}',
    '{% macro m(a) %}{% set a = a ~ "x" %}{% set a = a ~ "y" %}{{ a }}{% endmacro %}{% set k = "k" %}'
    '{{ m(k) }}{{ m(k ~ "") }}{{ k }}', '{% set z = z ~ "x" %}{{ z }}{% set z = z + "y" %}{{ z }}',
    '{% set ns = namespace(a="p" ~ i) %}{% set l2 = [ns.a] %}{% set ns.a = ns.a ~ "q" %}{{ l2 }}'
    '{% set ns.a = ns.a ~ "r" %}{{ ns.a }}{{ ns.a|length }}{% set ns.a = ns.a ~ ns.a %}{{ ns.a }}',
]

LANGUAGE = [f'{{{{ {line} }}}}' for line in EXPRESSIONS.replace('\\\n', '\\\x00').split('\n') if line]
LANGUAGE = [source.replace('\x00', '\n') for source in LANGUAGE] + STATEMENTS
