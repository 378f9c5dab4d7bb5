"""Numba's passes over a text of language numba: only those that such a text needs, in three quarters of the time.

A text has no closures, no `with`, no raise, no dead branch and no expression over whole arrays, and each of its
variables has one type: the passes for these change nothing, and are left out. The result types of operators are looked
up once a process: Numba looks each use up twice, through all overloads, including those for strings and sets.
References are counted only where memory is allocated."""

from typing import Any

from numba.core import types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.cpu import CPUTargetOptions
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering
from numba.core.types.misc import unliteral

# By name: an unknown pass of another release of Numba runs.
_LEFT_OUT = frozenset(
    """WithLifting InlineClosureLikes RewriteSemanticConstants DeadBranchPrune GenericRewrites RewriteDynamicRaises
    MakeFunctionToJitFunction InlineInlinables FindLiterallyCalls LiteralUnroll ReconstructSSA
    LiteralPropagationSubPipelinePass PreLowerStripPhis NopythonRewrites AnnotateTypes DumpParforDiagnostics""".split()
)
_signatures: dict[tuple[Any, ...], Any] = {}  # signatures of functions, by function and argument types


def shorten(function: Any, *, is_launch: bool = False) -> None:
    """Let Numba compile a function of a text with fewer passes. A launch is called only from Python, and its arrays
    never alias where one of them is written: so LLVM needs no alias checks before a loop."""
    compiler = function._compiler
    compiler.targetdescr = _Target(compiler.targetdescr, _Launch if is_launch else compiler.targetdescr.options)
    compiler.pipeline_class = _Shorter
    function.targetoptions["_nrt"] = "noyau_row" in function.py_func.__code__.co_names


class _Launch(CPUTargetOptions):  # type: ignore[misc]
    """The compiler options of a launch."""

    def finalize(self, flags: Any, options: Any) -> None:
        super().finalize(flags, options)
        flags.noalias, flags.no_cfunc_wrapper = True, True


class _WrappedObject:
    """A proxy of an object of Numba; other attributes are the object's own."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


class _Target(_WrappedObject):
    """Numba's target, with other options."""

    def __init__(self, target: Any, options: Any) -> None:
        super().__init__(target)
        self.options, self.typing_context = options, _Typing(target.typing_context)


class _Typing(_WrappedObject):
    """Numba's typing context; lookups of functions of Python and NumPy are memoised."""

    def resolve_function_type(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if named or not _is_known(function):
            return self._whole.resolve_function_type(function, arguments, named)
        plain = tuple(map(unliteral, arguments))
        if all(isinstance(kind, types.Number | types.Boolean) for kind in plain):
            arguments = plain  # the literal 64 is an int64 to arithmetic
        key = function, *arguments
        if key not in _signatures:
            _signatures[key] = self._whole.resolve_function_type(function, arguments, named)
        return _signatures[key]


def _is_known(function: Any) -> bool:
    """Whether a function is an operator, a builtin or a type of number, not an intrinsic of a text."""
    if isinstance(function, types.Function):
        key = function.typing_key
        return isinstance(key, str) or getattr(key, "__module__", "") in ("_operator", "builtins", "math")
    return isinstance(function, types.NumberClass)


class _Lower(Lower):  # type: ignore[misc]
    """Numba's lowering of a typed function, with operators' signatures memoised once a process."""

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        context, builder, signature = self.context, self.builder, self.fndesc.calltypes[expr]
        function = context.typing_context.resolve_value_type(op)
        key = function, *signature.args
        if key not in _signatures:
            _signatures[key] = function.get_call_type(context.typing_context, signature.args, {})
        pairs = zip((expr.lhs.name, expr.rhs.name), signature.args, strict=True)
        sides = [context.cast(builder, self.loadvar(name), self.typeof(name), kind) for name, kind in pairs]
        value = context.get_function(function, _signatures[key])(builder, sides)
        return context.cast(builder, value, signature.return_type, resty)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):  # type: ignore[misc]
    _name = "shorter_lowering"
    lowering_class = _Lower


class _Passes(PassManager):  # type: ignore[misc]
    _ENFORCING = False  # else variables are analysed again after each pass


class _Shorter(CompilerBase):  # type: ignore[misc]
    """Numba's compiler, without the passes that change nothing in a text."""

    def define_pipelines(self) -> list[PassManager]:
        passes = _Passes("shorter")
        passes.passes = [
            (_Lowering, each[1]) if each[0] is NativeLowering else each
            for each in DefaultPassBuilder.define_nopython_pipeline(self.state).passes
            if each[0].__name__ not in _LEFT_OUT
        ]
        passes.finalize()
        return [passes]
