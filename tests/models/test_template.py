"""Chat templates: what Jinja renders, for friendly ones; a prompt TemplateError for hostile ones."""

from __future__ import annotations

import json
import time
import tracemalloc
from datetime import datetime
from enum import StrEnum
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from support.vocabulary import CHATML
from ultrafast.errors import TemplateError
from ultrafast.models.bounds import MAX_SECONDS
from ultrafast.models.template import ChatTemplate

CHAT = [
    {"role": "system", "content": "Be brief. <|im_end|>\n"},
    {"role": "user", "content": "Grüße 👋 & <b>\t"},
    {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"x": [1, 2.5, None, True]}}]},
    {"role": "tool", "name": "f", "content": "é " * 300},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

# In the manner of published templates: namespaces, loop variables, macros, slices, filters, tests, whitespace control.
FRIENDLY = {
    "chatml": CHATML,
    "whitespace": "  {% for m in messages -%}\n  {% if loop.first %}A{% endif %}\n {{- m.role -}} \n{% endfor %}\n end",
    "namespace": "{% set ns = namespace(out=[], n=0) %}{% for m in messages %}{% if m.role != 'system' %}"
    "{% set ns.out = ns.out + [m] %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}"
    "{{ ns.n }}{{ ns.out|map(attribute='role')|join(', ') }}{{ ns.out[-1].content[:5] ~ ns.n ~ true }}",
    "loops": "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{{ loop.cycle('a', 'b') }}"
    "{{ loop.previtem.role if loop.previtem is defined }}{% if loop.index0 == 2 %}{% break %}{% endif %}{% endfor %}"
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{% else %}none{% endfor %}"
    "{% for k, v in messages[3].items() %}{{ k }}={{ v|length }}{% endfor %}",
    "recursion": "{% for x in [[1, [2]], [3]] recursive %}{{ loop.depth }}{% if x is iterable %}{{ loop(x) }}"
    "{% endif %}{% endfor %}",
    "macros": "{% macro call(c, sep=',') %}{{ c.name }}{{ sep }}{{ varargs|length }}{{ kwargs|length }}"
    "{{ caller() if caller }}{% endmacro %}{{ call(messages[2].tool_calls[0], ';', 1, z=2) }}"
    "{% call call(messages[3]) %}body{% endcall %}{% set x %}set {{ call(messages[3]) }}{% endset %}{{ x|upper }}"
    "{% filter trim %}  a {% endfilter %}",
    "filters": "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ ' a '|trim }}{{ messages|length }}"
    "{{ messages|rejectattr('role', 'in', ['user', 'tool'])|map(attribute='role')|list }}{{ 'a-b'|replace('-', '+') }}"
    "{{ nothing|default('d') }}{{ messages[0].content|e }}{{ [3, 1, 2]|sort|first }}{{ 'x\ny'|indent(2) }}"
    "{{ '%s-%03d' % ('a', 5) }}{{ '%.2f'|format(2.5) }}{{ [1, 2, 3]|sum }}{{ {'b': 1, 'a': 2}|dictsort }}"
    "{{ 2.567|round(1) }}{{ [1, 2, 3]|batch(2, 0)|list }}{{ 'ab'|center(6) }}{{ [1, 2, 2]|unique|list }}"
    "{{ messages|groupby('role')|length }}",
    "operators": "{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 10 }}{{ -3 * 2 }}{{ 'ab' * 3 }}{{ [0] * 2 + [1] }}{{ 1 < 2 <= 2 }}"
    "{{ 'a' in 'cat' and 'x' not in ['y'] }}{{ (1, 'b') }}{{ {'a': [1]}['a'][0] }}{{ not none }}{{ [1, 2, 3][::-1] }}",
    "methods": "{{ ' A b '.strip().lower().split(' ') }}{{ '</t>x'.split('</t>')[-1].lstrip('\n') }}"
    "{{ 'ab'.replace('a', 'c') }}"
    "{{ ','.join(['a', 'b']) }}{{ messages[0].get('name', 'none') }}{{ messages[0].keys()|list }}"
    "{{ 'a'.startswith('a') }}"
    "{{ messages[2]['tool_calls'][0].arguments.x.index(2.5) }}",
    "tokens": "{{ bos_token }}{% if tools %}t{% endif %}{{ tools is none }}{{ documents is none }}{{ eos_token }}",
    "blocks": "{% block a %}{{ bos_token }}{% endblock %}{{ self.a() }}{% with y = 1 %}{{ y }}{% endwith %}",
}


def stock_render(source: str, messages: Any) -> str:
    """The same by Jinja itself, with no bounds."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    variables = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True}
    return environment.from_string(source).render(**variables, **TOKENS)


@pytest.mark.parametrize("name", FRIENDLY)
def test_renders_what_jinja_renders(name: str) -> None:
    assert ChatTemplate(FRIENDLY[name], TOKENS).render(CHAT) == stock_render(FRIENDLY[name], CHAT)


def test_tojson_is_that_of_hugging_face() -> None:
    source = (
        "{{ messages[2].tool_calls|tojson }}|{{ messages[1]|tojson(indent=2) }}|"
        "{{ {'b': 1, 'a': '<'}|tojson(sort_keys=true) }}"
    )
    expected = "|".join(
        [
            json.dumps(CHAT[2]["tool_calls"], ensure_ascii=False),
            json.dumps(CHAT[1], ensure_ascii=False, indent=2),
            '{"a": "<", "b": 1}',
        ]
    )
    assert ChatTemplate(source, {}).render(CHAT) == expected


def test_generation_marks_and_dates_and_the_generation_prompt() -> None:
    source = "{% generation %}x{% endgeneration %}{{ strftime_now('%Y') }}{{ add_generation_prompt }}"
    expected = f"x{datetime.now():%Y}False"
    assert ChatTemplate(source, {}).render(CHAT, add_generation_prompt=False) == expected
    assert ChatTemplate("{{ date_string is defined }}", {}).render([]) == "False"


def test_a_refusal_carries_the_words_of_the_template() -> None:
    template = ChatTemplate("{% if messages[0].role == 'system' %}{{ raise_exception('No system!') }}{% endif %}ok", {})
    with pytest.raises(TemplateError, match=r"^No system!$") as caught:
        template.render(CHAT)
    assert caught.value.status == 400
    assert template.render(CHAT[1:]) == "ok"


def test_no_template_and_broken_ones_are_told_when_messages_come() -> None:
    with pytest.raises(TemplateError, match="no chat template; send a raw prompt"):
        ChatTemplate(None, {}).render(CHAT)
    with pytest.raises(TemplateError, match=r"broken: .*line 2"):
        ChatTemplate("\n{% for %}", {}).render(CHAT)
    with pytest.raises(TemplateError, match="has 200000 characters"):
        ChatTemplate("a" * 200_000, {}).render(CHAT)


def test_only_json_values_reach_a_template() -> None:
    class Role(StrEnum):
        USER = "user"

    template = ChatTemplate("{{ messages[0].role }}", {})
    assert template.render([{"role": Role.USER}]) == "user"
    with pytest.raises(TemplateError, match="hold a object"):
        template.render([{"role": object()}])
    nested: Any = []
    for _ in range(1000):
        nested = [nested]
    with pytest.raises(TemplateError, match="nested"):
        template.render([{"role": nested}])


def test_a_long_chat_with_patterns_that_look_back_is_within_bounds() -> None:
    source = (
        "{% set ns = namespace(kept=[]) %}{% for m in messages %}{% set ns.kept = ns.kept + [m] %}"
        "{% if loop.index0 == messages|length - 1 or messages[loop.index0 + 1:]|length > 0 %}"
        "{{ m.content|trim }}{% endif %}"
        "{% endfor %}{{ ns.kept|length }}"
    )
    messages = [{"role": "user", "content": "word " * 400}] * 200
    assert ChatTemplate(source, {}).render(messages).endswith("word200")


GROW = "{%% set ns = namespace(x=%s) %%}{%% for i in range(99) %%}{%% set ns.x = %s %%}{%% endfor %%}{{ ns.x }}"
NAP = "{% for a in range(99999) %}{% for b in range(99999) %}"
HOSTILE = {
    "nested loops": NAP + "{% endfor %}{% endfor %}",
    "filtered loops": "{% for a in range(99999) if false %}{% endfor %}" * 50,
    "range": "{% for a in range(10**9) %}{% endfor %}",
    "string repetition": "{{ 'a' * 10**9 }}",
    "list repetition": "{{ [0] * 10**9 }}",
    "format width": "{{ '%1000000000d' % 3 }}",
    "format star": "{{ '%*d' % (1000000000, 3) }}",
    "format precision": "{{ '%.1000000000f' % 3.0 }}",
    "format filter": "{{ '%1000000000d'|format(3) }}",
    "format named": "{{ '%(a)1000000000d' % {'a': 3} }}",
    "format method": "{{ '{:1000000000}'.format(1) }}",
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "expandtabs": "{{ '\t'.expandtabs(10**9) }}",
    "translate": "{{ 'aaa'.translate({97: 'x' * 100000}) }}",
    "to_bytes": "{{ (1).to_bytes(10**9, 'big') }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "big product": GROW % ("10 ** 900", "ns.x * ns.x"),
    "center": "{{ 'a'|center(10**9) }}",
    "batch": "{{ [1]|batch(10**9, 0)|list }}",
    "slice": "{{ [1]|slice(10**9)|list }}",
    "indent": "{{ 'a\n'|indent(10**9) }}",
    "json indent": "{{ [[1]]|tojson(indent=10**9) }}",
    "rounding": "{{ 1.5|round(10**9, 'ceil') }}",
    "join filter": "{{ range(99999)|join('a' * 99999) }}",
    "join method": "{{ ('a' * 99999).join('b' * 99999) }}",
    "replace filter": "{{ ('a' * 99999)|replace('a', 'b' * 99999) }}",
    "replace method": "{{ ('a' * 99999).replace('', 'b' * 99999) }}",
    "sum of lists": "{{ [[1], [2]]|sum }}",
    "list of characters": "{{ ('x' * 1999999)|list|length }}",
    "quadratic search": "{{ ('a' * 1999999).rfind('b' + 'a' * 999999) }}",
    "quadratic strip": "{{ ('c' * 1999999).strip('a' * 999999 + 'c') }}",
    "quadratic trim": "{{ ('c' * 1999999)|trim('a' * 999999 + 'c') }}",
    "quadratic select": "{{ range(99999)|select('in', range(99999)|list)|list|length }}",
    "doubling by ~": GROW % ("'ab'", "ns.x ~ ns.x"),
    "doubling by +": GROW % ("'ab'", "ns.x + ns.x"),
    "doubling lists": GROW % ("[1]", "[ns.x, ns.x]"),
    "doubling tuples": GROW % ("(1,)", "(ns.x, ns.x)"),
    "doubling dicts": GROW % ("{}", "dict(a=ns.x, b=ns.x)"),
    "doubling varargs": "{% macro m(n) %}{{ m(n - 1, varargs, varargs) if n else varargs }}{% endmacro %}"
    "{{ m(60, 1) }}",
    "deep tuple": "{% set ns = namespace(x=(1,)) %}{% for i in range(99999) %}{% set ns.x = (ns.x,) %}{% endfor %}"
    "{{ {ns.x: 1} }}",
    "recursive macro": "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "recursive block": "{% block a %}{{ self.a() }}{% endblock %}",
    "recursive loop": "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
    "output": NAP + "{{ 'a' * 9999 }}{% endfor %}{% endfor %}",
    "output of constants": NAP + "y" * 9999 + "{% endfor %}{% endfor %}",
    "captured output": "{% set x %}" + NAP + "{{ 'a' * 9999 }}{% endfor %}{% endfor %}{% endset %}",
    "date width": "{{ strftime_now('%999999999d') }}",
    "deep source": "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
    "long source": "{{ " + "a+" * 3000 + "1 }}",
    "huge literal": "{{ " + "9" * 100000 + " }}",
    "class walk": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "function globals": "{{ raise_exception.__globals__['x'] }}",
    "attr filter": "{{ (raise_exception|attr('__globals__'))['x'] }}",
    "loop internals": "{% for i in [1] %}{{ loop.__init__.__globals__ }}{% endfor %}",
    "changing a list": "{{ messages.append(1) }}",
    "changing a dict": "{{ messages[0].update({'a': 1}) }}",
    "include": "{% include '/etc/passwd' %}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_get_an_error_soon_and_little_memory(name: str) -> None:
    tracemalloc.start()
    try:
        template = ChatTemplate(HOSTILE[name], {})
        started = time.monotonic()
        with pytest.raises(TemplateError) as caught:
            template.render(CHAT)
        assert time.monotonic() - started < MAX_SECONDS + 3
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert len(caught.value.message) < 1000


def test_the_clock_stops_what_the_count_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate("{% for a in range(1000) %}{% endfor %}ok", {})
    assert template.render(CHAT) == "ok"
    monkeypatch.setattr("ultrafast.models.bounds.MAX_SECONDS", -1.0)
    with pytest.raises(TemplateError, match="takes longer than"):
        template.render(CHAT)


def test_an_error_leaves_the_template_usable() -> None:
    template = ChatTemplate("{{ 'a' * messages[0].n }}", {})
    with pytest.raises(TemplateError):
        template.render([{"n": 10**9}])
    assert template.render([{"n": 3}]) == "aaa"
