"""Chat templates of the same structure as those of known models, as short as that allows."""

from __future__ import annotations

PLAIN = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""SmolLM2 135M: any role, no tools."""

_TOOLS_IN_SYSTEM = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- 'Tools:' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
    {{- '\\nCalls:\\n<tool_call>\\n{"name": <name>, "arguments": <object>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
"""

_RESULTS = """\
    {%- elif m.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
"""

QWEN = (
    _TOOLS_IN_SYSTEM
    + """\
{%- for m in messages %}
    {%- set is_plain = m.role == 'assistant' and not m.tool_calls %}
    {%- if m.role == 'user' or (m.role == 'system' and not loop.first) or is_plain %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
    {%- elif m.role == 'assistant' %}
        {{- '<|im_start|>assistant' }}
        {%- if m.content %}{{- '\\n' + m.content }}{%- endif %}
        {%- for call in m.tool_calls %}
            {%- set call = call.function %}
            {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' + (call.arguments | tojson) }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
"""
    + _RESULTS
    + "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""Qwen 2.5."""

QWEN_THINKING = (
    _TOOLS_IN_SYSTEM
    + """\
{%- for m in messages %}
    {%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
    {%- elif m.role == 'assistant' %}
        {%- set content = m.content.split('</think>')[-1].lstrip('\\n') %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if m.reasoning_content %}{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}
        {{- content }}
        {%- for call in m.tool_calls or [] %}
            {%- if not loop.first or content %}{{- '\\n' }}{%- endif %}
            {%- set call = call.function %}
            {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
"""
    + _RESULTS
    + "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}%s{%- endif %}"
)
QWEN3 = QWEN_THINKING.replace("%s", "")
"""Qwen 3: thinks if it likes."""

QWEN3_THINKING = QWEN_THINKING.replace("%s", "{{- '<think>\\n' }}")
"""Qwen 3 Thinking: the prompt begins the thoughts."""

SMOLLM3 = """\
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% set messages = messages[1:] %}{% endif %}
{% if tools %}
For each call: <tool_call>
{"name": <name>, "arguments": <object>}
</tool_call>
<tools>{% for tool in tools %}{{ tool | string }}{% endfor %}</tools>
{% endif %}<|im_end|>
{% for m in messages %}
{% if m.role == 'user' %}<|im_start|>user
{{ m.content }}<|im_end|>
{% elif m.role == 'assistant' %}<|im_start|>assistant
{{ m.content.lstrip('\\n') }}<|im_end|>
{% elif m.role == 'tool' %}<|im_start|>user
{{ m.content }}<|im_end|>
{% endif %}
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{# without thoughts: <think>\\n\\n</think> #}{% endif %}"""
"""SmolLM3: knows tools, but not `tool_calls`; no system message but the first."""

LISTED = PLAIN.replace(
    "{% for m",
    """{% if tools %}<|im_start|>system
{{ tools | tojson }} Write <tool_call>[
{"name": "f", "arguments": {}}
]</tool_call><|im_end|>
{% endif %}{% for m""",
    1,
)
"""SmolLM2 1.7B as it was trained."""

LLAMA = """\
{%- if messages[0].role == 'system' %}{%- set system = messages[0].content %}{%- set messages = messages[1:] %}
{%- else %}{%- set system = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' + system + '<|eot_id|>' }}
{%- if tools %}
    {%- if not messages %}{{- raise_exception('no first user message') }}{%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\nRespond with {"name": name, "parameters": object}.\\n' }}
    {%- for tool in tools %}{{- tool | tojson(indent=4) }}{%- endfor %}
    {{- messages[0].content + '<|eot_id|>' }}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for m in messages %}
    {%- if not (m.role == 'ipython' or m.role == 'tool' or 'tool_calls' in m) %}
        {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in m %}
        {%- if m.tool_calls | length != 1 %}{{- raise_exception('only single tool-calls at once') }}{%- endif %}
        {%- set call = m.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- '}<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + (m.content | tojson) + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""
"""Llama 3.2."""

MISTRAL = """\
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content %}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- set ns = namespace(turn=0) %}
{%- for m in messages %}
    {%- if m.role == 'user' or (m.role == 'assistant' and m.tool_calls is not defined) %}
        {%- if (m.role == 'user') != (ns.turn % 2 == 0) %}{{- raise_exception('roles must alternate') }}{%- endif %}
        {%- set ns.turn = ns.turn + 1 %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- if loop.last and tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
        {{- '[INST]' + (system + '\\n\\n' if loop.last and system is defined else '') + m.content + '[/INST]' }}
    {%- elif m.tool_calls is defined and m.tool_calls is not none %}
        {{- '[TOOL_CALLS] [' }}
        {%- for call in m.tool_calls %}
            {%- if call.id | length != 9 %}{{- raise_exception('IDs have length 9') }}{%- endif %}
            {{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' + (']' if loop.last else ', ') }}
        {%- endfor %}
    {%- elif m.role == 'assistant' %}{{- ' ' + m.content + '</s>' }}
    {%- elif m.role == 'tool' %}
        {%- if m.tool_call_id | length != 9 %}{{- raise_exception('IDs have length 9') }}{%- endif %}
        {{- '[TOOL_RESULTS]{"content": ' + m.content + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception('unknown role') }}
    {%- endif %}
{%- endfor %}"""
"""Mistral 7B v0.3: strict about ids and turns; the tools are with the last user message only."""

GEMMA = """\
{%- if messages[0].role == 'system' %}{{- raise_exception('System role not supported') }}{%- endif %}
{%- for m in messages %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('roles must alternate') }}{%- endif %}
    {{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"""
"""Gemma 2: no system messages, user and model take turns."""

XML = """\
{%- if tools %}
    {{- tools | tojson + 'Write <tool_call>\\n<function=name>\\n<parameter=key>\\nvalue\\n</parameter>' }}
{%- endif %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' + m.content }}
    {%- for call in m.tool_calls or [] %}
        {{- '<tool_call>\\n<function=' + call.function.name + '>\\n' }}
        {%- for key, value in call.function.arguments | items %}{{- '<parameter=' + key + '>' + value }}{%- endfor %}
        {{- '</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}"""
"""A syntax of calls that is not JSON."""
