#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/jinja/constructs.json: every construct of templates,
in texts of our own, and what transformers makes of them.

usage: jinja_constructs.py [--show] [--check]      (pip install transformers)
"""
import json
import pathlib
import random
import sys

import jinja_oracle

TARGET = (pathlib.Path(__file__).resolve().parents[1]
          / "fixtures/jinja/constructs.json")
EMPTY = {}
DATA = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Grüße, 世界 🌍!\n"},
        {"role": "assistant", "content": "It's \"fine\"\t\\ ok", "tool_calls": [
            {"type": "function", "function": {
                "name": "add", "arguments": {"a": 1, "b": 2.5, "c": None}}}]},
        {"role": "tool", "content": [{"type": "text", "text": "3.5"}]},
        {"role": "user", "content": ""},
    ],
    "numbers": [3, 1, 2], "mixed": ["b", "A", "c", "a"], "flag": True,
    "nothing": None, "pi": 3.14159, "big": 12345678901234567, "neg": -7,
    "people": [{"name": "Zoe", "age": 30, "home": {"city": "Rome"}},
               {"name": "adam", "age": 25, "home": {"city": "Oslo"}},
               {"name": "Bea", "age": 30, "home": {"city": "rome"}}],
    "tree": [{"n": 1, "c": [{"n": 2, "c": []},
                            {"n": 3, "c": [{"n": 4, "c": []}]}]},
             {"n": 5, "c": []}],
    "d": {"b": 1, "a": [1, 2], "items": "key", "C": {"x": "y"}},
    "s": "The quick brown fox",
}

# One expression a line; printed alone.
EXPRESSIONS = r'''
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3
2 ** 3 ** 2
2 ** -1, 2.0 ** 3, (-8) ** 3
7.5 // 2, -7.5 % 2, 1e3, 1.5e-7, 1e16, 123456789.123
0.1 + 0.2, 1 / 3, 100.0, 1e22, 5e-324, 1.0e15
10 ** 18, 9223372036854775807
-3 | abs, +3, - -3, -(2), -2 | abs
'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1, 'x'] ~ {'k': 'v'}
'a' 'b' "c"
'ab' * 3, 3 * 'x', [1, 2] * 2, 'x' * -1
[1] + [2, 3], (1,) + (2,), 'a' + 'b'
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, true == 1, 'a' < 'b', [1, 2] < [1, 3]
'a' in 'abc', 'd' not in 'abc', 1 in [1, 2], 'b' in d, 5 in (1, 2)
not true, not '', not [], true and 'x', '' or 'y', none or 0, 0 and 1
1 if false, 1 if true else 2, (1 if false) is undefined
'yes' if flag else 'no' if nothing else 'maybe'
true, false, none, True, False, None
[], [1, 'a', none, true, 1.5], {}, {'a': 1, 2: 'b', none: 3}, (), (1,), (1, 2)
'it\'s', "say \"hi\"", 'tab\tnl\n', '\x41\u00e9\U0001F600\101', '\d'
['it\'s', "q\"q", 'a\\b', 'n\nt\t', 'é', '\x00\x7f\u200b', '🌍']
1_000, 0x1F, 0b101, 0o17, 1_0.5_0
s[0], s[-1], s[4:9], s[::-1], s[-3:], s[:3], s[100:], s[5:2]
numbers[0], numbers[-1], numbers[1:], numbers[::2], numbers[::-1], numbers[5:]
numbers[10] is undefined, d.missing is undefined, d['b'], d.b, d['missing']
messages[1].content[2:7], messages[1].content[9], messages[1]['content'] | length
d['items'], d.get('items'), d.get('zz'), d.get('zz', 5)
d.items() | list, d.keys() | list, d.values() | list
d.keys(), d.values(), d.items()
d | items | list, nothing_here | items | list
d | length, s | length, numbers | count, (1, 2) | length, 'äöü' | length
d | string, numbers | string, 1.5 | string, none | string
s.upper(), s.lower(), s.title(), s.swapcase(), s.capitalize()
'ß'.upper(), 'ŉ'.upper(), 'ǆ'.title(), 'İ'.lower(), 'ΑΣ'.lower(), 'ΑΣΑ'.lower()
'ΟΔΥΣΣΕΥΣ ΟΔΟΣ'.lower(), 'ﬁne'.upper(), 'ﬁne'.capitalize(), 'ÀÉ'.casefold()
s.split(), s.split(' ', 1), 'a,b,,c'.split(','), '  x  y '.split(), ''.split(), ''.split(',')
s.rsplit(' ', 1), 'a b c'.rsplit(), ' a b c '.rsplit(none, 1), ' a b c '.split(none, 1)
'a,b,c'.rsplit(',', 1), 'abc'.split('x'), 'a--b'.split('--'), s.split(sep=' ', maxsplit=2)
'  x '.strip(), '  x '.lstrip() ~ '|', '  x '.rstrip() ~ '|', 'xxaxx'.strip('x'), 'abcab'.strip('ba')
'\u3000wide\u00a0'.strip(), 'a\x1cb\x85c\u2028d'.splitlines()
'a\nb\r\nc\rd\n'.splitlines(), 'a\nb\n'.splitlines(true), ''.splitlines()
s.startswith('The'), s.endswith('fox'), s.startswith(('a', 'T')), s.startswith('quick', 4), s.endswith('x', 0, 3)
s.replace('quick', 'slow'), 'aaa'.replace('a', 'b', 2), 'abc'.replace('', '-'), 'abc'.replace('', '-', 2)
s.find('quick'), s.find('zz'), s.rfind('o'), s.index('b'), 'äöü'.find('ü'), s.find('o', 13), s.find('o', -3)
s.count('o'), 'aaaa'.count('aa'), ''.count(''), 'abc'.count(''), 'äöü'.count('ö', 1)
','.join(['a', 'b']), ''.join([]), '-'.join('abc'), ', '.join(d)
'abc'.removeprefix('a'), 'abc'.removesuffix('c'), 'abc'.removeprefix('x')
'abc'.partition('b'), 'abc'.rpartition('x'), 'abc'.partition('x'), 'a.b.c'.rpartition('.')
'12'.isdigit(), 'a1'.isalnum(), 'ab'.isalpha(), ' '.isspace(), ''.isspace(), 'A'.isupper(), 'a'.islower()
'²'.isdigit(), '²'.isdecimal(), '½'.isnumeric(), '٣'.isdecimal(), 'Ab Cd'.istitle(), 'a_b'.isidentifier(), 'é'.isascii()
'x'.center(6) ~ '|', 'x'.ljust(4, '.') ~ '|', 'x'.rjust(4) ~ '|', '-5'.zfill(5), 'abc'.center(6, '*'), 'ab'.center(5)
'a\tb'.expandtabs(4), 'ab\tc'.expandtabs()
'{} {}'.format(1, 'a'), '{1} {0}'.format(1, 2), '{x}'.format(x=5), '{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c')
'{:05d} {:+d} {:x} {:#X} {:b} {:,}'.format(42, 7, 255, 255, 5, 1234567)
'{:.2f} {:8.3f} {:e} {:g} {:%} {:,.1f}'.format(3.14159, 2.5, 12345.678, 0.0001, 0.25, 9876543.21)
'{!r} {!s} {!a}'.format('é', 'é', 'é'), '{{}}'.format(), '{0[a]} {0.b}'.format({'a': 1, 'b': 2})
'{:{}}'.format('x', 4) ~ '|', '{:*^9}'.format('mid'), '{:.3}'.format('abcdef'), '{:.3}'.format(1234.5)
'%s and %d' % ('a', 5), '%5.2f|%-5s|%05d' % (3.14159, 'ab', 42), '%x %X %o' % (255, 255, 8), '%%' % ()
'%(a)s-%(b)d' % {'a': 'x', 'b': 3}, '%r' % 'q', '%s' % [1, 2], '%c' % 'z', '%+d % d' % (1, 2), '%e' % 1234.5
'%s %s' | format('a', 'b'), '%(k)s' | format(k='v')
s | upper, s | lower, s | capitalize, s | title, "it's o'clock (now) [x] -y" | title
' x ' | trim ~ '|', 'xax' | trim('x')
numbers | sort, mixed | sort, mixed | sort(case_sensitive=true), numbers | sort(reverse=true), numbers | sort(true)
people | sort(attribute='age') | map(attribute='name') | list
people | sort(attribute='age,name') | map(attribute='name') | list
people | sort(attribute='home.city', reverse=true) | map(attribute='home.city') | list
numbers | min, numbers | max, mixed | min, people | max(attribute='age'), [] | max
numbers | sum, [1.5, 2] | sum, people | sum(attribute='age'), [[1], [2]] | sum(start=[])
numbers | first, numbers | last, s | first, s | last, [] | first, d | first, d | last
numbers | reverse | list, s | reverse, numbers | join(', '), [1, none, 'x'] | join, people | join('-', attribute='name')
mixed | unique | list, mixed | unique(case_sensitive=true) | list, people | unique(attribute='age') | map(attribute='name') | list
numbers | map('string') | list, mixed | map('upper') | join, people | map(attribute='zz', default='-') | list
numbers | map('round', 1) | list, people | map(attribute='home.city') | list
numbers | select('odd') | list, numbers | reject('odd') | list, numbers | select('gt', 1) | list, [0, 1, ''] | select | list
people | selectattr('age', 'equalto', 30) | map(attribute='name') | list
people | rejectattr('age', '==', 30) | list | length, messages | selectattr('tool_calls', 'defined') | list | length
messages | selectattr('role', 'in', ['user', 'system']) | map(attribute='role') | list
people | groupby('age') | map('first') | list, people | groupby('home.city') | map(attribute='grouper') | list
people | groupby('age') | length, (people | groupby('age'))[0].list | length
d | dictsort, {'b': 1, 'A': 2, 'c': 0} | dictsort, {'b': 1, 'A': 2} | dictsort(true), {'b': 1, 'a': 2} | dictsort(by='value', reverse=true)
numbers | batch(2) | list, numbers | batch(2, 0) | list, range(7) | slice(3) | list, range(7) | slice(3, 'x') | list
'abc' | list, d | list, range(3) | list, (1, 2) | list
undefined_name | default('x'), '' | default('x'), '' | default('x', true), none | d('y'), none | d('y', true)
'42' | int, '42.9' | int, 'x' | int, 'x' | int(7), '0x1A' | int(base=16), '101' | int(0, 2), ' 7_0 ' | int, 3.9 | int, none | int, true | int
'1.5' | float, 'x' | float, 'x' | float(2.5), '1e3' | float, 3 | float, ' inf' | float
2.5 | round, 3.5 | round, 2.675 | round(2), 42 | round, 42.55 | round(1, 'floor'), 42.51 | round(1, 'ceil'), 1234 | round(-2)
'a<b>&"\'' | escape, '<' | e ~ '>', ('<' | safe) + '>', '<b>' | safe ~ '&', '<' | forceescape
['<' | e], ('<' | e) is escaped, '<' is escaped
'line1\nline2\n\nline4' | indent, 'a\nb' | indent(2, true), 'a\n\nb' | indent(2, blank=true), 'a\nb' | indent('>>')
'foo bar baz qux' | truncate(9), 'foo bar baz qux' | truncate(9, true), 'foo bar' | truncate(11), 'foo bar baz qux' | truncate(11, false, '..', 0)
'x' | center(5) ~ '|', 'one two, three' | wordcount, 'a b/c?d=é' | urlencode, {'a b': 'c&d', 'x': 1} | urlencode
1 | filesizeformat, 999 | filesizeformat, 1500 | filesizeformat, 123456789 | filesizeformat, 2048 | filesizeformat(true)
{'class': 'a b', 'id': none, 'x': '<'} | xmlattr
'hello' | replace('l', 'L'), 'hello' | replace('l', 'L', 1), 12321 | replace(2, 'x')
d | attr('items') is callable, s | attr('upper') is callable, d | attr('b') is undefined
d | tojson, [1, 2.0, none, true, 'é"\n'] | tojson, {} | tojson, [] | tojson, 'x' | tojson, (1, 2) | tojson
d | tojson(indent=2), d | tojson(sort_keys=true), d | tojson(separators=(',', ':')), [] | tojson(indent=4), {'a': {}} | tojson(indent=1)
'é\u2028🌍\x7f\x01' | tojson, 'é\u2028🌍\x7f' | tojson(ensure_ascii=true), {1: 2, true: 3, none: 4, 1.5: 5} | tojson
messages[2].tool_calls[0].function.arguments | tojson, [[1, [2]], {'a': [{}]}] | tojson(indent=2)
1 is odd, 2 is even, 9 is divisibleby 3, 9 is divisibleby(4), 1 is number, true is number, '1' is number
x is defined, s is defined, x is undefined, none is none, s is not none, s is string, d is mapping, numbers is sequence
d is sequence, 5 is iterable, s is iterable, numbers is iterable, range is callable, d.items is callable
true is boolean, 1 is boolean, 1 is integer, true is integer, 1.0 is float, 1 is float, true is true, 1 is true, false is false
'abc' is lower, 'ABC' is upper, 'Abc' is lower, 1 is sameas 1, none is sameas none, true is sameas true
1 is eq 1, 1 is ne 2, 2 is gt 1, 1 is lt 2, 2 is ge 2, 1 is le 1, 1 is in [1], 3 is not in [1], 'upper' is filter, 'zz' is filter, 'odd' is test
1 is equalto 1 and 2 is greaterthan 1 or false, not 1 is odd, 1 is odd is defined
range(3) | list, range(1, 7, 2) | list, range(5, 0, -2) | list, range(3), range(1, 5, 2), range(10)[3], range(10)[2:4] | list
dict(a=1, b='x'), dict([('k', 1)]), dict({'q': 2}, z=3), namespace(a=1).a
strftime_now('%Y-%m-%d'), strftime_now('%d %b %Y %H:%M:%S'), strftime_now('')
loop is undefined, caller is undefined
messages | map(attribute='content') | list
messages[3].content | map(attribute='text') | join, messages[3].content is string, messages[3].content[0].type
(1, 2) == [1, 2], {'a': 1} == {'a': 1.0}, [1, [2]] == [1, [2]], 'a' == 1, none == false, undefined_a == undefined_b
range(5).index(2), range(5).count(9), ('<a>' | escape).split('a'), ('<' | e).upper()
numbers.index(2), numbers.count(1), (1, 2, 1).count(1), numbers.copy(), d.copy() == d
[1, 2, 3][1], {'a': {'b': 5}}.a.b, 'x'.upper(), (1, 2)[0], [[1, 2], [3]][0][1], 'a.b'.split('.')[1], d.a.0, d.a[-1]
"{% not a tag %}", '}}', '{{', {'}}': 1}
[1, 2,], {'a': 1,}, (1, 2,), range(3,) | list
3.0, 3.10, 1e5, 123e-7, 1.0e100, -0.0, 0.00001, 0.0001
'a' if x is defined else 'b', x.y is defined if x is defined else 'z'
'ünïcödé' | upper, 'ÜNÏ' | lower, 'straße' | title, 'ǅungla' | capitalize
'%d%%' % 50, '%s' % none, '%s' % (none,), '%5s|%-6r|' % ('é', 'é'), '%.2s' % 'abc', '%i' % 3.7
'日本語'[1], '日本語'[::-1], '🌍x'[0], '日本語'.find('語'), '日本語'.center(7, '・')
'A' < 'a', 'é' > 'z', 'Z' < 'a', '' < 'a', [] < [1], (1, 'a') < (1, 'b')
'  ' is string, ' \t\n' | trim == '', 'x' in ['x'] and 'y' not in ['x']
lipsum is defined, cycler is defined, zz is not defined
'a-b_c d' | title, 'ab.cd' | capitalize, "x'y" | title, 'a1b' | title
{'a': 1}['a'], {'a': 1}.get('b') is none, {1: 'x'}[1], {'1': 'x'}[1] is undefined, {true: 'y'}[1]
'x' ~ undefined_name ~ 'y', undefined_name | length, undefined_name | list, undefined_name | join(','), undefined_name | upper
[undefined_name], undefined_name == '', undefined_name is none, not undefined_name
'abc' | batch(2) | map('join') | list, 'b,a' | replace(',', '') | sort | join, 'hello' | unique | join
1.5 // 0.5, 5 % 2.5, 1e308 * 10, -1e308 * 10, 2 ** 0.5, 7 / 2, 6 / 2
flag and 'a' or 'b', (flag or x.y.z), flag ~ ''
true + true, true * 3, -true, true | int, 5 // true
numbers | tojson | length, d | string | length, pi | round(2), neg | abs, big * 2, big / 2
'x y z'.split()[1:] | join('+'), ('a,b;c' | replace(';', ',')).split(',') | last
'"' ~ "'" ~ '"', '\'\'' ~ "\"\"", ['\'"'], ["'"], ['"']
'%s' % 'a' ~ 'b', 'a' ~ 1 + 2, 1 ~ 2 * 3, 'x' * 2 ~ 'y', -1 ** 2, 2 * -3
'\\n', '\\', 'a\
b', '\é\q'
'ﬀ'.title(), 'ŉa'.title(), "they're".title(), 'x-ray'.title(), 'İI'.swapcase(), 'ß'.swapcase()
'{0:>{1}}'.format('a', 3), '{a.b}'.format(a={'b': 1}), '{:d}'.format(true), '{}'.format(none), '{:>6}'.format(true)
(1,) | join, ((1, 2), (3,)) | map('sum') | list, [3, 1] | sort | first, {'a': 2} | list | first
'a' is in 'abc', 'a' is in ['b'], 1 is lessthan 2, 1 is not eq 1
'ABC'.lower().upper()[0:2].lower(), s.split()[0].upper().lower()[1], s.strip().split(' ')[-1]
'0' is number, '' is defined, [] is mapping, {} is mapping, (1,) is sequence, namespace() is mapping
'%5d|%-5d|%05.1f|%.0f' % (42, 42, 2.25, 2.5), '%g %g' % (1e10, 0.5), '%s%s' % (1, 'a'), '%a' % 'é'
'{:.0f} {:.1e} {:G}'.format(2.5, 12345, 1e-10), '{:<05}'.format(3), '{: d}'.format(3), '{:_}'.format(1234567), '{:c}'.format(65)
'ab' 'cd' | upper, ('a' 'b') | length, 'x' | upper | lower | upper
'a\n b' | indent(1) | tojson, '\t' | tojson, '/' | tojson, '</script>' | tojson
[true, false, none] | tojson, [1e100, 1.0, -0.0, 1e16, 1e-5] | tojson, {'a': undefined_name} | string
people[0].home.city, people[0]['home']['city'], people | map(attribute='home') | map(attribute='city') | first
people | map(attribute=0) | list, [[1, 2], [3, 4]] | map(attribute=1) | list, [[1, 2], [3, 4]] | map('last') | list, [['a'], ['b']] | map('join') | list
5 | string ~ 5, 5 | float ~ '', '5' | int + 1, 5 | default(3), none | default(3), false | default(true), false | default(true, true)
'abc' | first | upper, 'abc'[0:1] | upper, 'abc'[-2:] ~ 'abc'[:-2], 'abc'[:] == 'abc', 'abc'[1:][0]
'x' and 'y', '' and 'y', [] or {}, none and x.y, 1 and 2 and 3, 0 or '' or 'last'
'\ud7ff' | length, '\uffff' is string, 'e\u0301' | length, 'e\u0301' | upper, '\u0345'.upper()
'a' == 'a' == 'a', 1 < 2 != 3 >= 3, 1 in [1] == true, 'a' in 'ab' in ['ab']
'a=%s' % 'b' | upper, ('a=%s' % 'b') | upper
'x'.join(numbers | map('string')), numbers | map('string') | map('length') | sum
'I\u0307'.lower(), '\u1E9E'.lower(), 'Ω'.lower(), 'µ'.upper(), 'ÿ'.upper(), 'ſ'.upper(), 'ı'.upper()
{'a': 1, 'a': 2}, {1: 'a', 1.0: 'b', true: 'c'}, {(1, 2): 'x'}[(1, 2)], {'x': [1, {'y': (2,)}]}
'[' ~ '\u00a0 x \u2003' | trim ~ ']', '\x1f' | trim | length, '\x00 ' | trim | length
'false' is true, 'x' is sameas 'x', [] is sameas [], 1.0 is integer, 1.5 is number
d.C.x, d.C['x'], d['C']['x'], d['C'].x, d.C.x.y is undefined, d.C.get('x').upper()
'none' ~ none, [none] | join, [none, 1] | map('string') | list, none ~ '', [true] | join
'b' in 'abc' and 'x' not in 'abc' if true else false
'%3s|%-3s|' % ('é', 'é'), 'é'.ljust(3) ~ '|', '{:3}|'.format('é')
1000000 * 1000000, 99999999999 + 1, 5 - 10, -5 // 3, -5 % 3, 5 // -3, 5 % -3, 0 // 5, 0 % 5
'abc' > 'abd', 'abc' >= 'abc', 'a' != 'b', [1] != [1], {} == {}, () == (), [] == ()
'é'.encode is defined, 'x'.zz is defined, s.foo is undefined, (5).bar is undefined, none.x is undefined
s.split(' ') | map('first') | join, s | list | length, s | map('upper') | join, s | select('in', 'aeiou') | list
numbers | sort | map('string') | join('<'), numbers | map('float') | list, '1 2' | replace(' ', '') | int
'%s' | format(numbers), '%s-%s' | format('a', none), '%d' | format(5.9)
people | map(attribute='name') | sort, people | map(attribute='name') | sort(case_sensitive=true), people | map('length') | list
people | rejectattr('home.city', 'eq', 'Rome') | map(attribute='home.city') | list, people | selectattr('age') | list | length
'a' | list | tojson, range(3) | list | tojson, d.items() | list | tojson, (numbers | reverse | list) | tojson
'x' if none else 'y' if 0 else 'z', ('x' if true) ~ 'y', [1 if true else 2, 3]
'' | first is undefined, [] | last is undefined, {} | first is undefined, '' | min is undefined
{'a': {'b': {'c': 'deep'}}}['a']['b']['c'], {'k': [10, 20]}['k'][1], [{'a': [{'b': 7}]}][0].a[0].b
'01'.isdigit() and '01' | int == 1, '1.0' | float == 1, '1' == 1, '1' ~ 1 == '11'
'a b'.split(' ', 0), 'a b c'.split(' ', -1), 'a  b'.split(' '), ' a '.split(' '), 'abc'.split('abc')
'x'.startswith(''), ''.startswith(''), 'x'.endswith(''), ''.find(''), 'x'.find('', 1), 'x'.find('', 2), 'abc'.rfind('')
'-1' | int, '+1' | int, '1e5' | int, '0b11' | int(base=2), '0o17' | int(base=8), 'ff' | int(base=16), '' | int, ' ' | int(3), '1_' | int
1.23456789012345678, 12345678912345.678, 0.1, 1e-4, 123456.7e10, 1.7976931348623157e308
'tojson' is filter, 'generation' is filter, 'divisibleby' is test, 'in' is test, 5 is filter
'x'.format(), '{0}{0}'.format('a'), '{a}{b}'.format(a=1, b=2), '{:}'.format(5), '{0!r:>6}'.format('a')
'Ǆ' | lower, 'ǆ' | upper, 'Ǆ' | capitalize, 'ᾳ'.upper(), 'ᾳ'.title(), 'ΐ'.upper(), 'և'.title()
'ΑΣ.'.lower(), 'Σ'.lower(), 'ΑΣ Σ'.lower(), "ΑΣ'".lower(), "ΑΣ'Α".lower(), 'ΑΣ' | capitalize, 'ΑΣ' | title
'\u2028' is string, ['\u2028', '\ue000', '\u0378', '\U000e0001', '\u00ad', '\xa0', '\u3000']
'abc'.isprintable(), '\n'.isprintable(), ''.isprintable(), ' '.isprintable(), 'é'.isprintable()
'ⅷ'.isalpha(), 'ⅷ'.islower(), 'ⅷ'.isnumeric(), 'ª'.islower(), 'ʰ'.isalpha(), '一'.isalpha(), '١٢'.isdigit(), 'a\u0301'.isalpha()
'a' * 0, [] * 5, 'ab' * true, (1, 2) * 2, 0 * [1]
'[%s]' % ', '.join(['a', 'b']), '[' ~ ['a', 'b'] | join(', ') ~ ']'
joiner('; ') is callable, cycler('a', 'b').current, cycler('a', 'b').next()
namespace(x=1), namespace({'a': 2}, b=3).a, namespace(x=1).y is undefined, namespace(x=1)['x']
(numbers | map('string')) is iterable, (numbers | map('string')) is sequence, (numbers | select) is string, ('a' if (numbers | reject) else 'b')
'x' | default('y') | upper, (none | default('z', true)).upper(), (d.q | default({})).r is undefined
'a\rb' | tojson, 'tab\there' | indent, "quote'" | tojson, '\x1b[0m' | tojson
'a' + 'b' ~ 'c' + 'd', 1 + 2 ~ 3 + 4, 2 * 3 ~ 4, 'n:' ~ 1 - 1
'%s' % d.b, '%s' % (d.a,), '%s %s' % (d.a[0], d.a[1]), '%(b)s' % d
'%s' % undefined_name, '%s|%s' % ('', undefined_name), '{}'.format(undefined_name), '[' ~ undefined_name.zz | default('') ~ ']' if false else 'ok'
'z' < 'aa', 'Z' < 'aa', '10' < '9', 10 < 9.5, 1 < true, 2 > true, 1e20 > 10 ** 18, 0.1 + 0.2 == 0.3
'x' in undefined_name, 'x' in [undefined_name], undefined_name in [undefined_name], undefined_name is in [1]
'x=' ~ (numbers | length) ~ ';', 'x=' ~ numbers | length ~ ';', ('x=' ~ numbers) | length
'Abc' | sort | join, 'cab' | max, 'cab' | min, ['b', 'A'] | max, ['b', 'A'] | max(case_sensitive=true), [2, 1.5, true] | min
[3, 1, 2] | sort(reverse=false) | first, [{'a': 2}, {'a': 1}] | sort(attribute='a') | first, ['b', none][0], [[2, 1], [1, 2]] | sort
'x' ~ '' | default('d') ~ 'y', '' | default('d', boolean=true), x | default(none) is none, x | default(default_value=1)
'{"a": 1}' | length, '{{ x }}' | length, '{# no #}' | length, '{%- raw %}' | length
'%s' % {'a': 1}, '%s' % ({'a': 1},), '%d items' % numbers | length, '%r' % [1, 'a', none]
'a.b.c' | replace('.', '/') | upper, 'tEST cASE' | capitalize, 'multi word Title-case' | title, '1st place' | title
'caf\u00e9'.upper(), 'CAF\u00c9' | lower, 'ÉCOLE' | capitalize, 'élan vital' | title, 'ÑANDÚ'.lower().capitalize()
1 if x else 2, x or 'or', x and 'and', not x, (x is defined) ~ '', (x | default('q')) ~ 'r'
'\t\n x \r\n' | trim | length, 'x\n' | trim ~ 'y', '\n\n' | trim | length
'a' ~ [] ~ {} ~ (), [[]] | join, [[], {}] | string, {} ~ '', (1, [2, (3, {'k': ()})]) ~ ''
'mixed' if 1 == 1.0 == true else 'not', 0 == false, '' == false, none == none, [] == false
'yes' if 'role' in messages[0] else 'no', 'yes' if messages[0].role == 'system' and messages | length > 1 else 'no'
messages | last == messages[-1], messages[:-1] | length, messages[1:][0].role, messages[::2] | map(attribute='role') | join(',')
messages[0]['content'].split('.')[0] ~ '!', messages[1].content.strip().rstrip('!'), messages[2].content | tojson
'a' if messages[2].tool_calls else 'b', messages[0].tool_calls is defined, messages[2].tool_calls is iterable and messages[2].tool_calls is not string
messages[2].tool_calls[0]['function']['arguments'].items() | list, messages[2].tool_calls[0].function.name, messages[2].tool_calls | map(attribute='function.name') | join
messages[3].content is not string and messages[3].content is iterable, messages[3].content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('')
messages | rejectattr('role', 'equalto', 'system') | list | length, (messages | selectattr('role', 'equalto', 'user') | list)[-1].content | length
'<|' ~ messages[0].role ~ '|>', '<|%s|>' % messages[0].role, '<|{}|>'.format(messages[0].role), '<|' + messages[0]['role'] + '|>'
'''.strip("\n")

# Expressions that are refused.
REFUSED = r'''
x.y
x['y']
x()
x + 1
1 + 'a'
'a' + 1
none + 1
[1] + (2,)
1 / 0
1 // 0
1 % 0
0 ** -1
none[0:1]
d[0:1]
x[0:1]
5[1:2]
'a' < 1
none < 1
x < 1
1 in 5
1 in 'a'
'a' in none
{[1]: 2}
{{}: 2}
numbers.append(4)
d.update({'a': 1})
d.pop('a')
d.setdefault('q', 1)
numbers.extend([1])
'abc'.nothing()
d.nothing()
numbers | nothing
1 is nothing
range(100001) | list
range()
range(1, 2, 0)
none | length
5 | length
numbers | map | list
numbers | map('nothing') | list
numbers | select('nothing') | list
5 | list
none | join
numbers | sum(start='')
'x' | round
none | abs
'a' | abs
['a', 1] | sort
'%d' % 'a'
'%s %s' % 'a'
'%s' % (1, 2)
'%' % 1
'%q' % 1
'{} {}'.format(1)
'{x}'.format()
'{'.format()
'{:d}'.format('a')
'{:q}'.format(1)
'a'.split('')
'a'.index('b')
','.join([1])
numbers.index(9)
raise_exception('our own message')
raise_exception('with ' ~ 1 ~ ' part')
s(1)
5()
messages[0].content()
(numbers | map('string')) | length
(numbers | map('string')) | last
loop.index
tojson(1)
range | tojson
x | tojson
{(1, 2): 3} | tojson
[namespace()] | tojson
dict(1)
dict('ab')
namespace(_a=1)
namespace(1)
'a' | upper(1)
'a' | replace('a')
'a' | default(1, 2, 3)
'a' | trim(zz=1)
'a' | truncate(1)
'abc'.startswith(1)
'abc'.replace('a', 1)
'abc'.center()
1 | batch(2) | list
numbers | slice(0) | list
numbers | groupby
x | int
x | float
x | abs
x.y | default('z')
-x
-'a'
+none
'a' * 'b'
'a' - 'b'
[1] * 1.5
'a' * 1.5
numbers['a'].b
numbers[9].b
(1, 2).append(3)
cycler()
joiner(1, 2)
'a' is divisibleby 2
1 is divisibleby 0
1 is divisibleby
1 is sameas
strftime_now()
strftime_now(5)
d.items(1)
d.get()
d.get([1])
numbers[1:2:0]
numbers['a':2]
'a'['b':]
"unfinished
'a' 5
1 +
(1
[1, 2
{'a'}
{'a': }
a b
1 2
a.
a[
a[]
| upper
a |
a is
a is not
foo(a=1, 2)
foo(**d, *a)
if
@
a ? b : c
a && b
a = 1
1 if
not
'\x4'
'\u12'
'\ud800'
99999999999999999999
9223372036854775807 + 1
9223372036854775807 * 2
2 ** 64
)
}
]
(]
'''.strip("\n")

# Integers beyond 64 bits: the library refuses what Python computes.
BEYOND = {"99999999999999999999", "9223372036854775807 + 1",
          "9223372036854775807 * 2", "2 ** 64"}

STATEMENTS = [
    ("if", "{% if flag %}a{% elif x %}b{% else %}c{% endif %}"
           "{% if x %}a{% elif flag %}b{% endif %}{% if x %}a{% elif x %}b"
           "{% else %}c{% endif %}"),
    ("for", "{% for n in numbers %}{{ n }},{% else %}none{% endfor %}"
            "{% for n in [] %}{{ n }}{% else %}none{% endfor %}"),
    ("for_attributes",
     "{% for n in numbers %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex"
     " }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
     "{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}|{{ loop.nextitem }}"
     "{{ loop.cycle('a', 'b') }};{% endfor %}"),
    ("for_changed", "{% for n in [1, 1, 2, 2, 1] %}{{ loop.changed(n) }}"
                    "{{ loop.changed(n, 1) }} {% endfor %}"),
    ("for_print_loop", "{% for n in numbers %}{{ loop }}{% endfor %}"),
    ("for_unpack", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}"
                   "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}"
                   "{% endfor %}"),
    ("for_filter", "{% for n in numbers if n > 1 %}{{ loop.index }}/"
                   "{{ loop.length }}:{{ n }}{{ loop.last }};{% else %}no"
                   "{% endfor %}{% for n in numbers if n > 9 %}x{% else %}no"
                   "{% endfor %}"),
    ("for_filter_lazy", "{% set ns = namespace(stop=false) %}{% for n in "
                        "[1, 2, 3, 4] if not ns.stop %}{{ n }}{% if n == 2 %}"
                        "{% set ns.stop = true %}{% endif %}{% endfor %}"),
    ("for_break", "{% for n in [1, 2, 3, 4] %}{% if n == 2 %}{% continue %}"
                  "{% endif %}{% if n == 4 %}{% break %}{% endif %}{{ n }}"
                  "{% else %}never{% endfor %}"),
    ("for_break_nested", "{% for a in [1, 2] %}{% for b in [1, 2, 3] %}"
                         "{% if b == 2 %}{% break %}{% endif %}{{ a }}{{ b }} "
                         "{% endfor %}{% endfor %}"),
    ("for_break_capture", "{% for a in [1, 2] %}{% set t %}x{% if a == 1 %}"
                          "{% continue %}{% endif %}y{% endset %}[{{ t }}]"
                          "{% endfor %}"),
    ("for_recursive", "{% for t in tree recursive %}{{ t.n }}@{{ loop.depth }}"
                      "{% if t.c %}({{ loop(t.c) }}){% endif %}{% endfor %}"),
    ("for_string", "{% for c in 'aé🌍' %}[{{ c }}]{% endfor %}{% for k in d %}"
                   "{{ k }}{% endfor %}{% for i in range(3) %}{{ i }}"
                   "{% endfor %}{% for q in undefined_thing %}x{% endfor %}"),
    ("for_tuple", "{% for n in 1, 2, 3 %}{{ n }}{% endfor %}{% for n in 5, %}"
                  "{{ n }}{% endfor %}"),
    ("for_nested_loop", "{% for a in [1, 2] %}{% set outer = loop %}{% for b in"
                        " 'xy' %}{{ outer.index }}{{ loop.index }}{% endfor %}"
                        "{% endfor %}"),
    ("for_iterator", "{% set g = numbers | map('string') %}{% for n in g %}"
                     "{{ n }}{{ loop.length }}{% endfor %}{% for n in g %}again"
                     "{% else %}empty{% endfor %}"),
    ("for_scope", "{% set x = 0 %}{% for n in numbers %}{{ x }}{% set x = n %}"
                  "{{ x }};{% endfor %}{{ x }}{{ n is defined }}"),
    ("for_group", "{% for g in people | groupby('age') %}{{ g.grouper }}:"
                  "{% for p in g.list %}{{ p.name }},{% endfor %};{% endfor %}"
                  "{% for age, ps in people | groupby('age') %}{{ age }}"
                  "{{ ps | length }}{% endfor %}"),
    ("set", "{% set a = 1 %}{% set b, c = 2, 3 %}{% set e = (1, 2) %}"
            "{{ a }}{{ b }}{{ c }}{{ e }}{% set f = 1, %}{{ f }}"),
    ("set_block", "{% set t %}  a{{ 1 + 1 }} {% endset %}[{{ t }}]"
                  "{% set u | upper | trim %} abc {% endset %}[{{ u }}]"),
    ("set_block_scope", "{% set v = 1 %}{% set t %}{% set v = 2 %}{{ v }}"
                        "{% endset %}{{ t }}{{ v }}"),
    ("namespace", "{% set ns = namespace(a=1, l=[]) %}{% for n in numbers %}"
                  "{% set ns.a = ns.a + n %}{% set ns.l = ns.l + [n] %}"
                  "{% endfor %}{{ ns.a }}{{ ns.l }}{{ ns }}"),
    ("namespace_tuple", "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}"
                        "{{ ns.a }}{{ b }}{{ ns.zz is defined }}"),
    ("if_scope", "{% if true %}{% set q = 1 %}{% endif %}{{ q }}"),
    ("with", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set a = 5 %}{{ a }}"
             "{% endwith %}{{ a is defined }}{% with %}x{% endwith %}"
             "{% set a = 3 %}{% with a = 1, b = a %}{{ b }}{% endwith %}"),
    ("macro", "{% macro m(a, b=2, c=a) %}({{ a }},{{ b }},{{ c }}){% endmacro"
              " %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m(1, c=9) }}"
              "{{ m() }}{{ m.name }}{{ m }}"),
    ("macro_varargs", "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}"
                      "{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m(1) }}"),
    ("macro_star", "{% macro m(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}"
                   "{{ m(*numbers) }}{{ m(1, **{'b': 2, 'c': 3}) }}"
                   "{{ m(*[1, 2], c=4) }}"),
    ("macro_recursive", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}"
                        "{% endif %}{% endmacro %}{{ f(5) }}"),
    ("macro_closure", "{% set v = 'g' %}{% macro m() %}{{ v }}{% set v = 'l' %}"
                      "{{ v }}{% endmacro %}{{ m() }}{{ v }}{% set v = 'h' %}"
                      "{{ m() }}"),
    ("macro_in_loop", "{% for n in numbers %}{% macro m() %}{{ n }}{% endmacro"
                      " %}{{ m() }}{% endfor %}"),
    ("macro_trim", "{% macro m(x) -%}\n   {{ x }}\n  {%- endmacro %}"
                   "[{{ m('a') | trim }}][{{ m('b') }}]"),
    ("call", "{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}"
             "{% call box('a') %}in{{ flag }}{% endcall %}"),
    ("call_args", "{% macro each(l) %}{% for i in l %}{{ caller(i, loop.index)"
                  " }}{% endfor %}{% endmacro %}{% call(x, n=0) each(numbers)"
                  " %}{{ n }}:{{ x }};{% endcall %}"),
    ("call_optional", "{% macro m() %}{% if caller %}{{ caller() }}{% else %}"
                      "none{% endif %}{% endmacro %}{{ m() }}"
                      "{% call m() %}x{% endcall %}"),
    ("filter_block", "{% filter upper %}ab{{ 'c' }}{% endfilter %}"
                     "{% filter trim | replace('a', 'b') %} aa {% endfilter %}"),
    ("generation", "{% for m in messages %}<{{ m.role }}>{% if m.role == "
                   "'assistant' %}{% generation %}{{ m.content }}é"
                   "{% endgeneration %}{% endif %}{% endfor %}"),
    ("generation_scope", "{% set a = 1 %}{% generation %}{% set a = 2 %}{{ a }}"
                         "{% endgeneration %}{{ a }}{% generation %}"
                         "{% endgeneration %}"),
    ("generation_space", "a\n  {% generation -%}\n  b\n  {%- endgeneration %}\n"
                         "c"),
    ("comment", "a{# b #}c{#- d -#} e {#+ f +#}\n{# g #}\nh"),
    ("raw", "{% raw %}{{ x }}{% if %}{% endraw %}|{%- raw -%} a {%- endraw -%}"
            " b{% raw %}\n c\n{% endraw %}\nd"),
    ("trim_blocks", "{% if true %}\na\n{% endif %}\nb\n"),
    ("lstrip_blocks", "  {% if true %}\n  a {{ 1 }}\n    {% endif %}\n  b"),
    ("lstrip_inline", "x  {% if true %}  a  {% endif %}  y"),
    ("plus", "  {%+ if true %}\n  a\n  {%+ endif +%}\n b"),
    ("minus", "a  \n {%- if true -%} \n b \n {%- endif -%} \n c"),
    ("minus_variable", "a  {{- 1 -}}  b\n{{ 2 }}\n{{- 3 }}\n  {{ 4 -}}\nc"),
    ("unicode_space", "a\u00a0{%- if true -%}\u3000b{% endif %}\u2003{{- 1 }}"),
    ("newlines", "a\r\nb\rc\n{% if true %}\r\nd{% endif %}\r\n"),
    ("trailing", "a\n\n"), ("empty", ""), ("only_newline", "\n"),
    ("text", "plain {text} with % and # and }} and %} and #}"),
    ("braces", "{ {{ '{' }} }{{ {'a': {'b': 1}} }}{{ '}}' }}"),
    ("print", "{% print 1, 'a' %}{% print x %}"),
    ("colon", "{% if true: %}a{% else: %}b{% endif %}{% for n in numbers: %}"
              "{{ n }}{% endfor %}"),
    ("tuple_print", "{{ 1, 2 }}{{ (1, 2) }}{{ 1, }}{{ () }}"),
    ("joiner", "{% set j = joiner() %}{% for n in numbers %}{{ j() }}{{ n }}"
               "{% endfor %}{% set k = joiner('|') %}{{ k() }}a{{ k() }}b"),
    ("cycler", "{% set c = cycler('a', 'b') %}{% for n in numbers %}"
               "{{ c.next() }}{{ c.current }}{% endfor %}{% set _ = c.reset()"
               " %}{{ c.current }}"),
    ("inline_set", "{%- set a = messages[0].content -%}{{ a }}"),
    ("loop_shadow", "{% set loop = 5 %}{% for n in numbers %}{{ loop.index }}"
                    "{% endfor %}{{ loop }}"),
    ("deep_if", "{% if a is defined and a or not b is defined %}1{% endif %}"
                "{% if not (flag and nothing) %}2{% endif %}"),
    ("unknown_filter_in_branch", "{% if false %}{{ 1 | nosuch }}{% endif %}ok"
                                 "{{ 1 if true else 2 | nosuch }}"),
    ("method_value", "{% set f = s.upper %}{{ f() }}{{ f is callable }}"),
    ("global_shadow", "{% set range = 5 %}{{ range }}"),
    ("long_text", "{% set ns = namespace(t='') %}{% for i in range(200) %}"
                  "{% set ns.t = ns.t ~ i %}{% set ns.t = ns.t + '.' %}"
                  "{% endfor %}{{ ns.t | length }}{{ ns.t[-9:] }}"),
    ("shared_prefix", "{% set a = 'x' ~ 'y' %}{% set b = a ~ '1' %}{% set c = "
                      "a ~ '2' %}{{ a }}{{ b }}{{ c }}"),
    ("many_keys", "{% set d = dict([('a', 1), ('b', 2), ('c', 3), ('e', 4), "
                  "('f', 5), ('g', 6), ('h', 7), ('i', 8), ('j', 9), ('k', "
                  "10)]) %}{{ d.k }}{{ d.a }}{{ d.zz is defined }}{{ d }}"),
    ("message_loop",
     "{{- bos }}\n{%- for message in messages %}\n    {%- if message.role == "
     "'system' and loop.first %}\n        {{- '<s>' ~ message.content ~ "
     "'</s>' }}\n    {%- elif message['role'] == 'user' %}\n        {{- "
     "'U: ' + message.content | trim }}\n    {%- elif message.tool_calls "
     "%}\n        {%- for c in message.tool_calls %}\n            {{- "
     "c.function | tojson }}\n        {%- endfor %}\n    {%- endif %}\n"
     "{%- endfor %}\n{%- if add_generation_prompt %}{{ 'A:' }}{%- endif %}"),
]
BROKEN = [
    ("unclosed_if", "{% if true %}a"), ("unclosed_for", "{% for a in b %}"),
    ("wrong_end", "{% if true %}{% endfor %}"), ("stray_end", "{% endif %}"),
    ("stray_else", "{% else %}"), ("unknown_tag", "a\n{% nosuch %}"),
    ("unclosed_variable", "{{ a"), ("unclosed_block", "{% if a"),
    ("unclosed_comment", "{# a"), ("unclosed_raw", "{% raw %} a"),
    ("empty_variable", "{{ }}"), ("empty_block", "{% %}"),
    ("for_without_in", "{% for a b %}{% endfor %}"),
    ("for_number", "{% for 1 in a %}{% endfor %}"),
    ("set_number", "{% set 1 = 2 %}"), ("set_true", "{% set true = 2 %}"),
    ("set_call", "{% set f() = 2 %}"), ("set_nothing", "{% set a = %}"),
    ("set_attribute", "{% set d.a = 1 %}"),
    ("set_attribute_private", "{% set n = namespace() %}{% set n._a = 1 %}"),
    ("break_outside", "{% break %}"), ("continue_outside", "{% continue %}"),
    ("break_in_macro", "{% for a in [1] %}{% macro m() %}{% break %}"
                       "{% endmacro %}{% endfor %}"),
    ("macro_too_many", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"),
    ("macro_unknown", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}"),
    ("macro_twice", "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}"),
    ("macro_default_order", "{% macro m(a=1, b) %}{% endmacro %}"),
    ("macro_same_name", "{% macro m(c, b=2, c=a) %}{% endmacro %}{{ m(1) }}"),
    ("macro_no_name", "{% macro (a) %}{% endmacro %}"),
    ("macro_caller", "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}"),
    ("call_nothing", "{% call 5 %}{% endcall %}"),
    ("unpack_few", "{% set a, b = 1, %}"), ("unpack_many", "{% set a, b = 'abc' %}"),
    ("unpack_loop", "{% for a, b in [[1]] %}{% endfor %}"),
    ("loop_not_recursive", "{% for a in [1] %}{{ loop([2]) }}{% endfor %}"),
    ("loop_none", "{% for a in none %}{% endfor %}"),
    ("loop_number", "{% for a in 5 %}{% endfor %}"),
    ("loop_cycle_nothing", "{% for a in [1] %}{{ loop.cycle() }}{% endfor %}"),
    ("include", "{% include 'a' %}"), ("import", "{% import 'a' as b %}"),
    ("from", "{% from 'a' import b %}"), ("extends", "{% extends 'a' %}"),
    ("do", "{% do numbers.append(1) %}"),
    ("unknown_filter_block", "{% filter nosuch %}{% endfilter %}"),
    ("raised", "a{% if flag %}{{ raise_exception('we say no') }}{% endif %}"),
    ("raised_later", "{% for m in messages %}{% if m.role == 'tool' %}"
                     "{{ raise_exception('Roles: ' ~ m.role) }}{% endif %}"
                     "{% endfor %}"),
    ("endless", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
]


def random_expression(draw, depth):
    """Arithmetic, logic and text of random shape; may be refused."""
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(
            ["1", "2", "0", "7", "-3", "2.5", "0.5", "'a'", "'b c'", "''",
             "true", "false", "none", "[1, 2]", "'é'", "numbers", "s", "flag",
             "(1, 2)", "x"])
    a = random_expression(draw, depth - 1)
    b = random_expression(draw, depth - 1)
    c = random_expression(draw, depth - 1)
    op = draw.choice("+ - * / // % ~ == != < <= > >= and or in".split()
                     + ["not in"])
    return draw.choice([
        f"{a} {op} {b}", f"({a} {op} {b})", f"{a} if {b} else {c}",
        f"not {a}", f"[{a}, {b}]", f"{a} {op} {b} {op} {c}",
        f"({a}) | string", f"({a}) | default({b}, true)", f"-({a})",
        f"({a}) is {draw.choice(['defined', 'string', 'number', 'none'])}",
        f"({a})[{draw.choice(['0', '-1', '1:', ':1', '::-1'])}]"])


def build():
    cases = jinja_oracle.Cases()
    cases.variables.append(DATA)
    for number, line in enumerate(EXPRESSIONS.split("\n")):
        if line.startswith("b', '") or line.endswith("'a\\"):
            continue  # two lines of one expression
        cases.add(f"expression {number}: {line[:40]}", "{{ %s }}" % line, DATA,
                  0)
    cases.add("a string over two lines", "{{ 'a\\\nb' }}", DATA, 0)
    for line in REFUSED.split("\n"):
        says = {"raise_exception('our own message')": "our own message",
                "x.y": "case:1:6: 'x' is undefined"}.get(line)
        case = cases.add(f"refused: {line}", "{{ %s }}" % line, DATA, 0, says)
        if line in BEYOND:
            case.pop("text")
    for name, text in STATEMENTS + BROKEN:
        says = {"raised": "case:1:18: we say no",
                "unknown_tag": "case:2:4: unknown tag 'nosuch'"}.get(name)
        cases.add(name, text, DATA, 0, says)
    draw = random.Random(16)
    for number in range(400):
        text = random_expression(draw, 3)
        cases.add(f"random {number}: {text[:60]}", "{{ %s }}" % text, DATA, 0)
    return cases


if __name__ == "__main__":
    made = build()
    if "--show" in sys.argv:
        for case in made.cases:
            print(case["name"], "->",
                  repr(case.get("text", case.get("why")))[:150])
    print(f"{len(made.cases)} cases, {made.refused} of them refused")
    if "--check" in sys.argv:
        sys.exit(json.loads(TARGET.read_text()) != made.file())
    made.write(TARGET)
