#!/usr/bin/env python3
"""make_cases.py - writes cases.jsonl: small templates, and what transformers renders them to.

Every line of TEMPLATES is one case, rendered with VARIABLES. A case that Python renders and the
program may refuse is in REFUSED.

Usage: make_cases.py >cases.jsonl
"""
import datetime
import json

from transformers.utils import chat_template_utils as hf

VARIABLES = {
    "messages": [
        {"role": "system", "content": " Be kind.\n"},
        {"role": "user", "content": "Grüße, 日本 \U0001f600"},
        {"role": "assistant", "content": "it's \"so\"", "n": 3, "tags": ["b", "A", "c"]},
    ],
    "tools": [{"name": "f", "p": {"type": "object", "z": 1.0, "a": [None, True, -2]}}],
    "words": ["pear", "Apple", "fig", "apple"],
    "numbers": [3, 1.5, -2, 10],
    "d": {"b": 1, "A": 2, "c": None, "items": "shadow"},
    "empty": "", "zero": 0, "nothing": None, "yes": True, "no": False,
    "s": "  The quick (brown) fox-trot  ", "lines": "a\nb\r\n\nc", "n": 7, "big": 9007199254740993,
    "f": 2.5, "html": "<a href='x'>&\"</a>",
}

EXPRESSIONS = r"""
1 + 2 * 3
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 / 2, 2 ** 10, 2 ** -1
7.5 // 2, -7.5 % 2, 1e16, 1e15, 1.0, 0.1 + 0.2, 1e-5, 123456.789, 1e22 * 10
1_000 + 0, 1.5e3, 10.0
"a" "b" 'c'
"a\tb\\n\x41\u00e9\101\q"
true, True, none, None, false
1 == 1.0, 1 == true, "1" == 1, none == false, [1] == [1], (1,) == [1]
1 < 2 < 3, 3 > 2 >= 2, 1 < 3 < 2, "a" < "b", [1, 2] < [1, 3]
1 in [1, 2], "a" in "cat", "b" in d, 3 not in numbers, "q" not in "cat"
not yes, not not yes, not empty
yes and "x", no and "x", empty or "y", zero or none
"x" if yes else "y", "x" if no else "y", "x" if no
1 ~ "a" ~ none ~ 1.5 ~ true ~ [1]
-n, +n, -f, - -n, -true
n.real
words[0], words[-1], words[9], words["x"], words[true]
words[1:], words[:-1], words[::2], words[::-1], words[3:1:-1], words[-100:100], words[5:]
s[2:5], s[::-1], "日本語"[1], "日本語"[::-1], "日本語"[1:], "日本語"[-1]
(1, 2)[0], (1,), (), (1, 2), [], {}
{"a": 1, 2: "b", none: [1]}, {"a": 1}["a"], {"a": 1}.a, {1: "x"}[true]
d.b, d["b"], d.zzz, d["items"], d.get("items"), d.get("q"), d.get("q", 5)
d.items(), d.keys(), d.values(), d.items() | list, d | items | list
d.items() | first, d.keys() | last, d | first, d | length
messages[0].role, messages[0]["role"], messages[2].tags[1], messages[1].nope
messages[1].nope.again
undefined_name
undefined_name.x
undefined_name["x"]
undefined_name()
undefined_name + 1
undefined_name[1:]
undefined_name | length, undefined_name | list, undefined_name | string, undefined_name | upper
undefined_name == undefined_name, undefined_name == none, undefined_name in [1], 1 in undefined_name
undefined_name | default("x"), empty | default("x"), empty | default("x", true), none | d("x", boolean=true)
nothing.x, nothing["x"], n.foo, n["foo"], empty.foo
nothing.x.y
nothing + 1
nothing | length
[1] + [2], (1,) + (2,), "a" + "b"
"a" + 1
1 + "a"
[1] + (2,)
"ab" * 3, 2 * "ab", [0] * 3, (1,) * 2, "x" * -1
"%s and %d" % ("a", 3), "%s" % "x", "100%% %r" % "q"
"%s %s" % "x"
"%s" % d
1 / 0
1 // 0
1 % 0
"a" < 1
none < 1
1 in 2
none in "abc"
{"a": 1} < {"b": 2}
[] is defined, x is defined, nothing is none, nothing is not none, x is undefined
yes is boolean, 1 is boolean, 1 is true, yes is true, no is false, zero is false
1 is integer, yes is integer, 1.0 is integer, 1.0 is float, 1 is float, yes is number, "1" is number
"a" is string, nothing is string, d is mapping, [] is mapping, words is sequence, d is sequence, "a" is sequence
words is iterable, d is iterable, "a" is iterable, 1 is iterable, x is iterable, x is sequence, d.items() is sequence
range(3) is sequence, words | map("upper") is sequence, words | map("upper") is iterable
3 is odd, 4 is even, 9 is divisibleby(3), 9 is divisibleby 2, 3 is eq 3, 3 is gt(2), 3 is lt 2, 3 is ne 3, 3 is ge 3
"a" is in "cat", 1 is in [1, 2], "a" is not in "cat"
"abc" is lower, "ABC" is upper, "aB1" is lower, "1" is upper
x is callable, range is callable, 1 is callable, d.items is callable
nothing is sameas none, yes is sameas true, 1 is sameas "1"
"upper" is filter, "zzz" is filter, "defined" is test
x is string is defined
tools | tojson
tools | tojson(indent=2)
tools | tojson(indent=0)
tools | tojson(indent="\t")
tools | tojson(separators=(",", ":"))
tools | tojson(sort_keys=true)
d | tojson(sort_keys=true, indent=4)
messages[1] | tojson(ensure_ascii=true)
messages[1] | tojson(true)
"\x00\x1f\x7f\u2028</script>'\"\\/" | tojson
"\x00\x1f\x7f\u2028\U0001f600" | tojson(ensure_ascii=true)
[1.0, 1e100, -0.0, 1e-7, 100000000000000000000.0, true, none, "x", (1, 2), {}, []] | tojson
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
[] | tojson(indent=2), {} | tojson(indent=2), [[]] | tojson(indent=1)
x | tojson
range(2) | tojson
d.items() | tojson
{"k": x} | tojson
s | trim, s | trim(" T"), s | trim("x"), 5 | trim, none | trim
s | upper, s | lower, s | title, s | capitalize, "ab-cd ef(gh" | title, "ÉCOLE straße" | lower, "straße ﬁ" | upper
"ΑΣ ΑΣΑ Σ" | lower, "İ" | lower, "ǆ" | upper, "élan" | capitalize, "ǆ" | capitalize
s.title(), "they're bill's".title(), "a1b c_d".title(), "Hello World".swapcase(), "hELLO".capitalize()
words | length, s | count, "日本" | length, d | length
words | join(", "), words | join, numbers | join("-"), messages | join(" ", attribute="role"), "abc" | join("."), [] | join("x"), [none, 1] | join(",")
words | first, words | last, [] | first, [] | last, "日本" | first, "日本" | last, range(3) | last
words | map("upper") | list, words | map("upper") | join(" "), messages | map(attribute="role") | list
messages | map(attribute="n", default=0) | list, messages | map(attribute="tags.1") | list
words | map("replace", "p", "P") | list, words | map("length") | sum, [[1, 2], [3]] | map("first") | list
words | map("nope") | list
[] | map("nope") | list
nothing | map("upper") | list, nothing | selectattr("a") | list
n | map("upper") | list
words | select("in", ["fig"]) | list, numbers | select("gt", 2) | list, [0, 1, "", "a"] | select | list, [0, 1] | reject | list
messages | selectattr("role", "equalto", "user") | list | length, messages | selectattr("n") | list | length, messages | selectattr("n", "defined") | map(attribute="role") | first
messages | rejectattr("role", "eq", "user") | map(attribute="role") | list, messages | rejectattr("role", "in", ["system"]) | list | length
messages | selectattr("role", "eq", "x") | list | length > 0, messages | selectattr("role", "eq", "x") | first is defined
numbers | select("gt", "x") | list
words | map("upper") | length
words | map("upper") | last
(words | map("upper"))[0]
words | sort, words | sort(reverse=true), words | sort(case_sensitive=true), messages | sort(attribute="role") | map(attribute="role") | list
numbers | sort, [3, "a"] | list | length
[3, "a"] | sort
d | dictsort, d | dictsort(true), {"b": 1, "a": 2} | dictsort(by="value"), {"b": 1, "a": 2} | dictsort(reverse=true), {"b": 1, "a": 2} | dictsort(false, "key")
words | dictsort
words | unique | list, words | unique(case_sensitive=true) | list, [1, 1.0, true, 2] | unique | list
numbers | min, numbers | max, words | min, words | max, [] | min, messages | max(attribute="role")
numbers | sum, [] | sum, [[1], [2]] | sum(start=[]), messages | map(attribute="n", default=1) | sum, [{"a": 1}] | sum(attribute="a")
words | reverse | list, "日本" | reverse, (1, 2) | reverse | list, range(3) | reverse | list
"5" | int, " 5 " | int, "5.7" | int, "x" | int, "x" | int(9), 5.9 | int, -5.9 | int, true | int, none | int, "1e3" | int, "" | int, "+3" | int
"5.5" | float, "x" | float, "x" | float(1.5), 3 | float, none | float, "1e3" | float
-5 | abs, 2.5 | abs, 2.567 | round(2), 2.5 | round, 3.5 | round, -2.5 | round(0), 1.005 | round(2)
html | safe, (html | safe) ~ "<", html | string, (html | safe) | length
(html | safe) + "<b>", "<i>" + ("x" | safe), ("a" | safe) | tojson, ("x" | safe) == "x", ["<" | safe]
html | replace("<", "["), "aaa" | replace("a", "b", 2), "ab" | replace("", "-"), 1231 | replace("1", "x"), "aXbX".replace("X", "")
lines | indent, lines | indent(2, true), lines | indent(2, blank=true), lines | indent("> ", first=true), "" | indent(2, true)
words | list, "abc" | list, d | list, (1, 2) | list
"a,b,,c".split(","), "a b  c ".split(), " a b ".split(none), "a,b,c".split(",", 1), "abc".split("x"), "".split(","), "".split(), "a  b c".split(none, 1), "a--b--c".split("--")[-1]
"a,b,c".rsplit(",", 1), "a b c".rsplit(), "abc".rsplit("c"), "a::b".rsplit("::")
"a".split("")
" x ".strip(), "xxaxx".strip("x"), "\n a\n".lstrip("\n"), "a \n".rstrip(), "日本日".strip("日"), "a\u3000\u00a0\x1c".strip(), "\u200ba".strip() | length
"abc".startswith("a"), "abc".endswith("bc"), "abc".startswith(("x", "a")), "abc".endswith(()), "abc".startswith("")
"abc".startswith(["a"])
"abc".find("c"), "abc".find("z"), "日本".find("本"), "abcabc".rfind("b"), "abcabc".find("b", 2), "abc".index("b"), "aXaXa".count("a"), "abc".count("")
"abc".index("z")
"a=b=c".partition("="), "a=b=c".rpartition("="), "abc".partition("z"), "abc".rpartition("z")
"abc".removeprefix("a"), "abc".removesuffix("c"), "abc".removeprefix("z")
lines.splitlines(), "a\n".splitlines(), "".splitlines(), "\n\n".splitlines(), "a\u2028b\x0bc".splitlines()
",".join(words), ",".join("abc"), "".join([])
",".join([1])
"abc".isalpha(), "ab1".isalnum(), "12".isdigit(), "".isdigit(), " ".isspace(), "aB".islower(), "AB".isupper(), "é".isalpha(), "1.5".isdigit(), "ab".isascii(), "é".isascii()
"ab".ljust(4) ~ "|", "ab".rjust(4, "0"), "ab".ljust(1)
"x".append(1)
words.append("x")
words.pop
words.index("fig"), words.count("fig"), (1, 2).index(2), words.copy()
d.update({"a": 1})
d.pop
d.copy() | length
"abc".zzz, "abc"["upper"](), d["get"]("b")
range(3) | list, range(1, 4) | list, range(5, 0, -2) | list, range(0) | list, range(-1) | list, range(3)[1], range(3) | length, 2 in range(3)
range(3)
range("x")
range(1000000)
range(1, 2, 0)
namespace(a=1).a, namespace(a=1).b, namespace(d).b, namespace() is mapping
dict(a=1, b=[2]), dict(d, z=1) | length, dict() | length
"" is sameas "" or true
nothing ~ "x", [nothing, yes, 1.0, "a'b", 'a"b', "a'b\"c", "\n\t\\", "é", "\u200b", "\x7f"]
{"a": {"b": [1, (2,)]}}, [x]
messages
"a" is defined and "b" is defined, n is defined or x.y is defined
n in [7] and n is odd, not n in [7], n not in [7] or true
(n > 3) | string, (n > 3) ~ "", n > 3 | int
-n | abs, -1 ** 2, 2 ** 3 ** 2, 2 - 3 - 4, 100 / 10 / 2, 7 - 2 ~ 3, 1 + 2 ~ 3 * 2
big, big + 1, big * 2, 9223372036854775807, f, f * 2, n / 7
loop
"{{ x }}"
'{%' ~ "%}" ~ '#}'
{"a": {"b": {"c": 1}}}.a.b.c, {"a": 1,}, [1, 2,], (1, 2,)
words.0, messages.2.tags.0, "ab".1
d|attr("b"), d|attr("keys") is callable, n|attr("zzz")
"x" is string and (words | length) == 4 and d.b == 1
words == ["pear", "Apple", "fig", "apple"], d == {"A": 2, "b": 1, "c": none, "items": "shadow"}
strftime_now("%Y-%m-%d"), strftime_now("%d %B %Y"), strftime_now("%b %d, %A %j"), strftime_now("%H:%M:%S")
raise_exception("no: " ~ n)
raise_exception()
caller
varargs
"a".format
"{} b".format("a")
words | zzz
words | batch(2)
x if y is defined
x.y if y is defined else "z"
1 if 2 else 3 if 4 else 5
[i for i in words]
1 +
(1, 2
"abc
foo(bar=1, 2)
1 2
is defined
"a" | upper()
"a" | upper(1)
"a" | default
"a" | default()
default("a")
words | map
messages | selectattr
messages | selectattr("role", "zzz") | list
[] | selectattr("role", "zzz") | list
true + true, true * 3, true == 1, 1 + true
"\u00e9" == "é", "e\u0301" == "é", "e\u0301" | length
d.items()[0], d.keys()[0] is defined
[[1, 2], [3, 4]] | map("last") | list, [[3, 1]] | map("sort") | list, ["a b"] | map("title") | first
[1, [2, [3]]] | string, "x" | string | length, none | string, 1.0 | string
[3, 1, 2] | sort | first, [3, 1, 2] | sort(reverse=true) | join(","), "bca" | sort, "bca" | list | sort(reverse=yes)
messages[-1].content | trim | replace("'", "’") | tojson
"a\nb" | tojson | safe, {"x": "<"} | tojson | safe
2.0 ** 0.5 | round(3), (2 ** 0.5) | round(3), 10 ** 2, 0 ** 0, 2.0 ** 3
1e308 * 10, -1e308 * 10
5 // 0.3, -5 % 3.5, 5.5 % -2
"é" > "z", "Z" < "a", "" < "a"
[1, 2] * 0, "a" in ["a"], ["a"] in [["a"]], {} in [{}]
"abc"[5], "abc"[-5], "abc"[1:1], "abc"[2:1], "abc"[::0]
words[none:2], words[:none], words["a":]
messages[1:] | map(attribute="role") | join, (messages | length - 1) // 2
"" or none or [] or 0, 1 and 2 and 3, 0 or 5 and 6
yes == true and no == false and nothing == none
"%s" | format("a"), "%s=%r, %d%%" | format("a", "b", 3), "%s" | format(["x", 1]), "%s" | format(d), "a" | format
"%s" | format(none), "%s" | format(1.5), "%s" | format((1, 2)), 5 | format, "%s" | format(x), "%s" | format(html | safe)
"%s" | format
"a" | format("b")
"%d" | format("b")
"%s" | format("a", k=1)
html | escape, html | e, 5 | e, (html | safe) | escape, (html | e) ~ "<", (html | e) + "<", none | e, ["<"] | e
html | forceescape, (html | safe) | forceescape
x | e, x | format, "a\x00b" | e, "日<" | e
html | e is escaped, html is escaped, (html | e) | length, html | e | upper, html | e | trim("<"), [html | e]
"a" | upper(zz=1)
messages | length(1)
"ab" | trim(5)
"ab" | replace("a", "b", "c")
5 | indent
"x" | abs
"-x" | int, "+" | int, "--5" | int, "-7" | int
[1] | items | list
[[1]] | unique | list
[{}] | unique | list
d | last, {} | last
n | sort
n | reverse
n | last
words | map("upper") | reverse | list
{"a": 1} | dictsort(by="x")
[] | map(attribute="a", zz=1) | list
words | map(attribute="a", zz=1) | list
"abcab".rindex("b"), "ABC É ΑΣ".lower(), "12".isdecimal(), "1.2".isdecimal(), "é".upper(), "ßx".upper()
"abc".rindex("z")
words.index("zzz")
words.count([1]), [[1]].index([1])
"a".replace("a", 5)
"a".replace(5, "a")
2.5 - 1, 2.5 + 1, 2.5 * 2, 1 - 2.5, 2.5 // 1, -2.5 % 2
0 ** -1
{[1]: 2}
{{}: 2}
d[[1]]
[1] in d
{(1, (2,)): 3}, {(1,): 2}[(1,)], {range(2): 1} | length, (1, [2]) in [(1, [2])]
{(1, [2]): 3}
{true: 1, false: 2} | tojson
{1: 1, "a": 2} | tojson(sort_keys=true)
{(1,): 2} | tojson
[1] | tojson(separators=(1, 2))
[1] | tojson(separators=5)
range | tojson
1.5 and "x", 0.0 or "y", d and "m", {} or "e", (1,) and "t", range(0) or "r", range is defined and "f", (words | map("upper")) and "i"
[1, 2] < [1], [1] < [1, 2], [1] <= [1], (1, "a") < (1, "b"), "ab" < "abc", [] < [0], [[1], [2]] < [[1], [3]]
[1, "a"] < [1, 2]
range == range, range == dict, words.append == words.append, d.get == 1
4 is le 4, 5 is le(4), 3 is lessthan 4, 3 is greaterthan 4
3 is "eq" 3
"a\u0301Σ".lower(), "Σ\u0301a".lower(), "a:Σ".lower(), "aΣ:b".lower(), "aΣb".lower(), "ʰΣ".lower(), "a\u00adΣ" | lower
[x, 1] | string
[1, 2][1:x]
d[1:2]
x[0:1]
(1, 2, 3)[::2], (1, 2, 3)[1:], "日本語a"[::2], (html | safe)[::2] ~ "<"
raise_exception("a", "b")
strftime_now()
strftime_now(5)
dict(5)
dict([1])
dict(d, b=5)
namespace(5)
nothing.items()
none | items | list
x | items | list, x | dictsort
5 | dictsort
d | join("-"), "ab" | join("-"), x | join("-"), [x, 1] | join("-"), [html | e, "<"] | join("<")
("a" is string) (1)
"a" | upper | lower, ("a" | upper)[0], "a" | upper ~ "b" | upper
messages | map(attribute="role") | map("upper") | select("in", ["USER"]) | list
messages | sum(attribute="zz")
words | min(attribute="zz")
"x" ~ (1, 2) ~ {"a": x}
"a,b" | replace(",", none), "abc" | replace("", "-"), none | replace("N", "x")
7 | string | int + 1, "7" ~ 1 | int, -"7" | int
true | int, true | float, "True" | int, true | abs, true ~ 1
words | length > 3 and not words | length > 4
not x is defined, not (x is defined) and yes, not yes == no
1 < 2 == true, 1 == 1 == 1, 1 < 2 != 3
[yes, no] | select | list, [0, none, "", [], {}, 0.0] | reject | list | length
"a" "b" ~ "c", ("a" "b") | upper
1 is divisibleby(0)
"x" is divisibleby 2
none is odd
words[1.0]
words["1"]
"abc"[true], words[false]
messages[0]["content"][1:3] | upper, messages[0].content.split()[0]
""".strip("\n").split("\n")

BLOCKS = [
    "a\n{% if yes %}\nb\n{% endif %}\nc\n",
    "a\n  {% if yes %}\n  b\n  {% endif %}\n  c\n\n",
    "a {%- if yes -%} b {%- endif -%} c",
    "a\n  {%+ if yes %}b{% endif +%}\nc",
    "x {#- c -#} y {# d #}\n  {# e #}\nz {#+ f +#}\ng",
    "{{- 'a' -}}  \n {{ 'b' }}\n{{ 'c' -}}\n d",
    "  {{ 1 }}\n  {% set a = 2 %}\n  {{ a }}\n",
    "{% raw %}{{ x }} {% if %}{# #}{% endraw %}!",
    "a\n  {% raw %}\n  b\n  {% endraw %}\n c {%- raw -%} d {%- endraw -%} e",
    "\r\na\r{% if yes %}\r\nb{% endif %}\r\n",
    "no end\n\n",
    "",
    "{%if yes%}x{%endif%}",
    "{% if no %}a{% elif zero %}b{% elif n %}c{% else %}d{% endif %}",
    "{% if no %}a{% else %}d{% endif %}",
    "{% for w in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
    "{{ loop.revindex }}{{ loop.revindex0 }}{{ w }} {% endfor %}",
    "{% for w in words %}{{ loop.previtem }}<{{ w }}>{{ loop.nextitem }} {% endfor %}",
    "{% for w in words %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}{% for k, v in d | items %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for w in words if w != 'fig' %}{{ loop.index }}/{{ loop.length }}{{ w }}{{ loop.last }} {% endfor %}",
    "{% for w in words if loop.first %}{{ w }}{% endfor %}",
    "{% for w in [] %}x{% else %}none{% endfor %}{% for w in undefined_name %}x{% else %}none{% endfor %}",
    "{% for w in words %}{% if w == 'fig' %}{% break %}{% endif %}{{ w }}{% endfor %}",
    "{% for w in words %}{% if w == 'fig' %}{% continue %}{% endif %}{{ w }}{% else %}no{% endfor %}",
    "{% for w in ['a'] %}{% continue %}{% else %}else{% endfor %}",
    "{% for w in ['a', 'b'] %}{% if w == 'b' %}{% break %}{% endif %}{% else %}else{% endfor %}",
    "{% for c in 'aé日' %}[{{ c }}]{% endfor %}{% for i in range(3) %}{{ i }}{% endfor %}",
    "{% for i in none %}{% endfor %}",
    "{% for i in 5 %}{% endfor %}",
    "{% for w in words %}{% for c in w %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% set x = 1 %}{% for w in words %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1, y=[]) %}{% for w in words %}{% set ns.x = ns.x + 1 %}"
    "{% set ns.y = ns.y + [w] %}{% endfor %}{{ ns.x }}{{ ns.y }}",
    "{% if yes %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}",
    "{% set a, b = [1] %}",
    "{% set x.y = 1 %}",
    "{% set d.y = 1 %}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set ns = namespace(_x=1) %}",
    "{% set ns = namespace() %}{% set ns.a.b = 1 %}",
    "{% set x %}a {{ n }} b{% endset %}[{{ x }}]{{ x is string }}",
    "{% set x | upper | trim %} a {% endset %}[{{ x }}]",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}",
    "{% set ns = namespace() %}{% set ns.t %}q{{ n }}{% endset %}{{ ns.t }}",
    "{% filter upper %}a{{ n }}b{% endfilter %}{% filter replace('a', 'b') | upper %}aa{% endfilter %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% with a = 1, b = a %}{{ b is defined }}{% endwith %}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=3) }}|{{ m(b=1, a=2) }}|{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(5) }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set x = 9 %}{{ x }}{% endmacro %}{{ m() }}{{ x is defined }}",
    "{% macro fact(n) %}{% if n > 1 %}{{ n }}*{{ fact(n - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}",
    "{% macro m() %}  {{- caller() -}}  {% endmacro %}{% call m() %}<{{ n }}>{% endcall %}",
    "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}-{{ b }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m(a) %}{{ caller is defined }}{{ a }}{% endmacro %}{{ m(1) }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{{ m(1) }}{% macro m(a) %}{{ a }}{% endmacro %}",
    "{% for w in words %}{% macro m() %}{{ w }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(1, **{'b': 3}) }}{{ m(*[1], b=2) }}",
    "{% macro m(a) %}{{ a | length }}{% endmacro %}{{ m('x' * 10) | int + 1 }}",
    "{% macro m() %}a{% endmacro %}{{ m is callable }}{{ m.name }}",
    "{% generation %}a{{ n }}{% endgeneration %}b{%- generation %} c {% endgeneration -%} d",
    "{% for w in words %}{% generation %}{% set q = 1 %}{{ loop.index }}{% endgeneration %}{{ q }}{% endfor %}",
    "{% set t = words | map('upper') %}{% for w in t %}{{ w }}{% endfor %}{% for w in t %}{{ w }}{% endfor %}",
    "{% if words | select('eq', 'zzz') %}always{% endif %}{% if (words | select('eq', 'zzz') | list) %}never{% endif %}",
    "{% set ns = namespace(stop=false) %}{% for w in words if not ns.stop %}{{ w }}"
    "{% if w == 'Apple' %}{% set ns.stop = true %}{% endif %}{% endfor %}",
    "{% for w in words %}{{ loop.depth0 }}{{ loop.depth }}{{ loop.zzz is defined }}{% endfor %}",
    "{% for w in words %}{% set q = 1 %}{% set q = q + 1 %}{{ q }}{% endfor %}",
    "{% with %}{% set q = 1 %}{% set q = 5 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{% macro m(a=1/0) %}{{ a }}{% endmacro %}{{ m(2) }}{{ m() }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro m(caller) %}{{ caller }}{% endmacro %}{{ m(1) }}",
    "{% macro m(loop) %}{{ loop }}{% endmacro %}{{ m(1) }}",
    "{% filter escape %}<{{ html }}>{% endfilter %}", "{% set x | e %}<a>{% endset %}{{ x ~ '<' }}",
    "{% filter format('a') %}[%s]{% endfilter %}",
    "{% set a = [1, 2] %}{% set b = a %}{% set a = a + [3] %}{{ b }}{{ a }}",
    "{% set a = {'k': []} %}{% for i in range(2) %}{% set a = dict(a, k=a.k + [i]) %}{% endfor %}{{ a }}",
    "{% for k in {'b': 1, 'a': 2} %}{{ k }}{{ loop.length }}{% endfor %}{% for x in (1, 2) %}{{ x }}{% endfor %}",
    "{% for i in range(3) %}{% for j in range(i) %}{% if j == 1 %}{% continue %}{% endif %}{{ i }}{{ j }} {% else %}-{% endfor %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for i in range(5) if i is odd %}{% set ns.n = ns.n + i %}{% else %}x{% endfor %}{{ ns.n }}",
    "{% set l = [] %}{% for w in words %}{% set l = l + [w] %}{% endfor %}{{ l | length }}",
    "{% set m = messages %}{% set messages = messages[1:] %}{{ messages | length }}{{ m | length }}",
    "{% if x is defined and x.y %}a{% else %}b{% endif %}",
    "{% if (n is defined) and (n > 3) or x.y %}a{% endif %}",
    "{% for m in messages %}{% if loop.first and m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for m in messages %}{{ '<|' ~ m['role'] ~ '|>\\n' + m['content'] | trim + '\\n' }}{% endfor %}",
    "{{ {'a': {'b': 1}}['a']['b'] }}}",
    "{{ '}}' }}{{ \"%}\" }}",
    "{{ 'a' }}{{ 1,2 }}{{ (1) }}",
    "{%- set a = 'x' -%}\n\n{{- a }}\n\n{%- set b %}\n q\n{% endset %}{{ b }}|",
    "{% if yes %}a{% endif %}\n{% if yes %}\nb\n{% endif %}",
    "{% for i in range(2) -%}\n  {{ i }}\n{%- endfor %}\n!",
    "{% for i in range(2) %}\n{{ i }}\n{% endfor %}\n!",
    "{% if yes -%} a {%- else -%} b {%- endif %}",
    "\t{% if yes %} \t\n\ta\n\t{% endif %}\t\nb",
    "x\u3000{%- if yes %}a{% endif -%}\u00a0 y",
    "{# multi\nline #}\na{# x #}b",
    "{% if no %}{{ x | nope }}{% endif %}ok",
    "{{ x | nope if no else 'ok' }}",
    "{% if yes %}{{ x | nope }}{% endif %}",
    "{% if no %}{% for a in b %}{{ a | nope }}{% endfor %}{% endif %}ok",
    "{% if no %}{{ 1 is nope }}{% endif %}ok",
    "{% unknown %}", "{% if %}", "{% if yes %}", "{% endif %}", "{% for %}", "{{ }}", "{{ x", "{% x",
    "{# x", "{% raw %} x", "{% break %}", "{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% set true = 1 %}", "{% set 1 = 2 %}", "{% for true in x %}{% endfor %}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{% else %}", "{% if yes %}{% else %}{% elif no %}{% endif %}", "{% block a %}{% endblock %}",
    "{{ loop.index }}", "{% set loop = 1 %}{{ loop }}",
    "{% for x in [[1, 2], [3]] %}{% set o = loop %}{% for y in x %}{{ o.index }}{{ loop.index }}{{ o.last }} {% endfor %}{% endfor %}",
    "{% do words.append(1) %}", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}",
    "{% autoescape true %}{% endautoescape %}",
    "{{ '\\N{DIGIT ONE}' }}", "{{ '\\ud83d\\ude00' }}", "{{ 0x10 }}", "{{ 99999999999999999999 }}", "{{ é }}",
    "{{ 1.real }}", "{{ 1..x }}", "{{ a.1.2 }}", "{{ a[1, 2] }}", "{{ a[] }}", "{{ a.b.c }}",
]

# Python renders this, or reads it, and the program refuses it by saying that it is not supported.
REFUSED = ["not supported", "is too large"]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 1, 2)


def case(template):
    try:
        text = hf._compile_jinja_template(template).render(**VARIABLES)
        text.encode()
        return {"template": template, "rendered": text}
    except Exception as error:
        return {"template": template, "error": f"{type(error).__name__}: {error}"}


def main():
    hf.datetime = Clock
    print(json.dumps({"variables": VARIABLES}, ensure_ascii=False))
    for e in EXPRESSIONS:
        print(json.dumps(case("{{ " + e + " }}"), ensure_ascii=False))
    for b in BLOCKS:
        print(json.dumps(case(b), ensure_ascii=False))


main()
