"""A Jinja environment in which a hostile template can neither reach Python nor keep it busy.

Jinja's immutable sandbox keeps templates away from Python's internals and from changing data. It does not bound work:
``'a' * 10**9``, ``x ~ x`` in a loop or a filter's width can fill memory inside one C call, which no timer in this
process could interrupt. So nothing here is stopped from outside; every operation pays before it runs:

* the generated code sends each operator, call, filter, test, subscript, literal, loop step and piece of output through
  this environment, which counts it, looks at the clock, and weighs what came out (`Budget.admit`);
* operations whose result can be much larger than their operands compute its size first (`Budget.room`);
* everything else is about linear in operands that were weighed before, so one operation takes milliseconds;
* only the callables, methods and filters listed here exist. Constants are not folded: that would happen uncounted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Cycler, Joiner, Namespace

from ultrafast.models.bounds import BINOP_CHECKS, budget, join, replace

_STR_METHODS = frozenset(  # none whose result can be much longer than the text
    """capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier islower
    isnumeric isprintable isspace istitle isupper lower lstrip partition removeprefix removesuffix rfind rindex
    rpartition rsplit rstrip split splitlines startswith strip swapcase title upper""".split()  # noqa: SIM905
)
_LINEAR = frozenset({"startswith", "endswith", "removeprefix", "removesuffix"})  # in their argument, too
_LIST_METHODS = frozenset({"copy", "count", "index"})
_DICT_METHODS = frozenset({"copy", "get", "items", "keys", "values"})


class _Namespace(Namespace):
    def __repr__(self) -> str:
        return "<Namespace>"  # not its contents: they are not weighed with it


class _CountingCompiler(CodeGenerator):
    """Generates code that leaves nothing uncounted. What the sandbox already routes through the environment (operators,
    calls, attributes, filters, tests) is counted there."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        sliced = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        made = isinstance(node, (nodes.Compare, nodes.Dict, nodes.List)) or (
            isinstance(node, nodes.Tuple) and node.ctx == "load"
        )
        if not (sliced or made):
            return super().visit(node, *args, **kwargs)
        self.write("environment.admit(")
        super().visit(node, *args, **kwargs)
        self.write(")")
        return None

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802
        node.iter = nodes.Call(nodes.EnvironmentAttribute("counted"), [node.iter], [], None, None)
        super().visit_For(node, frame)

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return f"environment.admit({super()._output_const_repr(group)})"


class _Generation(Extension):
    """``{% generation %}…{% endgeneration %}`` marks the assistant's part for training; here it is just its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox that chat templates run in; ``budget`` must be set while a template runs."""

    code_generator_class = _CountingCompiler
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, filters: dict[str, Callable[..., Any]], functions: dict[str, Callable[..., Any]]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _Generation],
            optimized=False,
            finalize=_finalize,
            cache_size=0,
        )
        self.filters = filters
        tests: Any = TESTS
        self.tests = {name: counted_function(test) for name, test in tests.items()}
        kept = {name: self.globals[name] for name in ("range", "dict", "cycler", "joiner")}
        self.globals = {**kept, "namespace": _Namespace, **functions}
        self.functions = tuple(self.globals.values())

    def admit(self, value: Any) -> Any:
        return budget.get().admit(value)

    def counted(self, iterable: Iterable[Any]) -> Iterator[Any]:
        """The items of a ``for`` loop, each paid for."""
        return budget.get().counted(iterable)

    def joined(self, parts: tuple[Any, ...]) -> Any:
        """``a ~ b ~ c``."""
        return self.admit(join(budget.get(), "", parts))

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.admit(super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        return self.admit(super().getitem(obj, argument))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator in BINOP_CHECKS:
            BINOP_CHECKS[operator](budget.get(), left, right)
        return self.admit(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        if __obj == __self.counted:
            return __obj(*args)
        __self.admit((args, kwargs))
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str) and name in _LARGE:
            return __self.admit(_LARGE[name](budget.get(), owner, *args))
        if isinstance(owner, str) and name not in _LINEAR:
            for text in (*args, *kwargs.values()):
                budget.get().search(owner, text)
        if not __self._may_call(__obj, owner, name):
            raise SecurityError(f"chat templates may not call {name or type(__obj).__name__!r}")
        result: Any = super().call(__context, __obj, *args, **kwargs)
        return __self.admit(list(result) if type(result) in _VIEWS else result)

    def _may_call(self, obj: Any, owner: Any, name: str) -> bool:
        if isinstance(obj, (Macro, BlockReference, LoopContext, Joiner)) or any(
            obj is known for known in self.functions
        ):
            return True
        return any(isinstance(owner, kind) and name in names for kind, names in _METHODS)


_LARGE: dict[str, Callable[..., str]] = {"join": join, "replace": replace}
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))  # which could not be weighed
_METHODS: tuple[tuple[type | tuple[type, ...], frozenset[str]], ...] = (
    (str, _STR_METHODS),
    (dict, _DICT_METHODS),
    ((list, tuple), _LIST_METHODS),
    (LoopContext, frozenset({"cycle", "changed"})),
    (Cycler, frozenset({"next", "reset"})),
)


@pass_context
def _finalize(context: Context, value: Any) -> Any:
    pay = budget.get()
    return pay.admit(pay.text(value))


def counted_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as a filter or test: its result paid for, and a list where it would be lazy."""

    def call(*args: Any, **kwargs: Any) -> Any:
        pay = budget.get()
        result = function(*args, **kwargs)
        return pay.admit(pay.items(result) if isinstance(result, Iterator) else result)

    call.__dict__.update(getattr(function, "__dict__", {}))  # Jinja's marks of functions that want the context
    return call
