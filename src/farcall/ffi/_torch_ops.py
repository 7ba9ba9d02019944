"""``Module.as_torch_op``: the functions of a library as operators of torch, ``torch.ops.<namespace>.<name>``.

torch.compile and torch.export keep the graph whole at an operator. Its schema comes from the metadata or the
Signature, and its fake implementation from the Signature or a rule of the caller. It is registered for
CompositeExplicitAutograd, so that tensors of every device reach the kernel.

Source: torch.library (2.13).
"""

from __future__ import annotations

import keyword
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farcall.errors import MissingExtraError
from farcall.ffi import _torch_fakes as fakes
from farcall.ffi._exported import Exported, Type, read_module
from farcall.ffi._torch_schema import Fill, NoSchemaError, Operator, operator_of, result_type

if TYPE_CHECKING:
    from farcall._core import Function, Module

_OF_TORCH = frozenset({"aten", "prim", "prims"})
_REGISTERED: list[Any] = []  # keeps each torch.library.Library alive: its operators end with it
_lock = threading.Lock()


class TorchOps:
    """The operators that :meth:`farcall.Module.as_torch_op` registered.

    ``ops.scale`` and ``ops["scale"]`` are ``torch.ops.<namespace>.scale``. Iterating yields the names.
    """

    def __init__(self, namespace: str, operators: Mapping[str, Any], skipped: Mapping[str, str]) -> None:
        self._namespace, self._operators, self._skipped = namespace, dict(operators), dict(skipped)
        self.__dict__.update({name: one for name, one in operators.items() if name not in self.__dict__})

    @property
    def skipped(self) -> Mapping[str, str]:
        """The functions that could not become operators, each with the reason."""
        return self._skipped

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        why = self._skipped.get(
            name, f"the module has no such function; it has `{'`, `'.join(self._operators)}`"
        )
        raise AttributeError(f"`{self._namespace}::{name}` is not an operator: {why}")

    def __getitem__(self, name: str) -> Any:
        try:
            return self._operators[name]
        except KeyError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._operators)

    def __len__(self) -> int:
        return len(self._operators)

    def __repr__(self) -> str:
        return f"<torch.ops.{self._namespace}: {', '.join(self._operators)}>"


def as_torch_op(
    module: Module,
    namespace: str,
    *,
    functions: Iterable[str] | None = None,
    fake: Mapping[str, Callable[..., Any]] | None = None,
    mutates: Mapping[str, Sequence[str | int]] | None = None,
) -> TorchOps:
    """Register the functions of a module as operators ``torch.ops.<namespace>.<name>``.

    Args:
        module: the module; functions without metadata and without a Signature are left out.
        namespace: a Python identifier.
        functions: the functions to register; default: all functions that torch's schemas can express. The
            result's ``skipped`` lists the others with the reasons.
        fake: by function name, a function that returns tensors of the right shapes without computing. It
            takes the arguments as fake tensors, with defaults filled in. An artifact's functions need none,
            nor do functions without results.
        mutates: by function name, the parameters that the kernel writes, by name or position; default: all
            tensors except those that the metadata marks as read-only.

    Returns:
        The operators.

    Raises:
        ValueError: the namespace is not valid, or an operator is registered already. Nothing is registered
            then.
        TypeError: one of ``functions`` has a type that torch's schemas cannot express.
        MissingExtraError: torch is not installed.
    """
    torch = _import_torch()
    _check_namespace(namespace)
    exported = {one.name: one for one in read_module(module)}
    wanted = list(exported) if functions is None else list(functions)
    for what, names in (("functions", wanted), ("fake", fake or ()), ("mutates", mutates or ())):
        _check_names(what, names, exported, module)
    for name, rule in (fake or {}).items():
        if not callable(rule):
            got = type(rule).__name__
            raise TypeError(f"as_torch_op: `fake` for `{name}`: expected a callable, got `{got}`")
    operators, skipped = _plan(exported, wanted, mutates or {})
    if skipped and (functions is not None or not operators):
        reasons = "; ".join(f"`{name}`: {why}" for name, why in skipped.items())
        raise TypeError(f"{module.path}: these functions cannot be operators of torch: {reasons}")
    with _lock:
        _refuse_registered(torch, namespace, [one.function.name for one in operators])
        _register(torch, module, namespace, operators, fake or {})
    space = getattr(torch.ops, namespace)
    made = {one.function.name: getattr(space, one.function.name) for one in operators}
    return TorchOps(namespace, made, skipped)


def _import_torch() -> Any:
    try:
        import torch
        import torch.library
    except ImportError as error:
        raise MissingExtraError(f"as_torch_op needs torch ({error}); pip install torch") from None
    return torch


# ---- the caller's arguments


def _check_namespace(namespace: str) -> None:
    if not isinstance(namespace, str):
        raise TypeError(f"as_torch_op: the namespace must be a str, got `{type(namespace).__name__}`")
    if not namespace.isidentifier() or keyword.iskeyword(namespace) or not namespace.isascii():
        raise ValueError(
            f"as_torch_op: the namespace {namespace!r} is not an identifier; expected a name such as 'mine'"
        )
    if namespace in _OF_TORCH:
        raise ValueError(f"as_torch_op: the namespace {namespace!r} is torch's own; choose another")


def _check_names(what: str, names: Iterable[str], exported: Mapping[str, Exported], module: Module) -> None:
    for name in names:
        if name not in exported:
            raise ValueError(
                f"as_torch_op: `{what}` names `{name}`, but {module.path} has only `{'`, `'.join(exported)}`"
            )


def _plan(
    exported: Mapping[str, Exported], wanted: Iterable[str], mutates: Mapping[str, Sequence[str | int]]
) -> tuple[list[Operator], dict[str, str]]:
    operators, skipped = [], {}
    for name in wanted:
        try:
            operators.append(operator_of(exported[name], mutates.get(name)))
        except NoSchemaError as error:
            skipped[name] = str(error)
    return operators, skipped


def _refuse_registered(torch: Any, namespace: str, names: Iterable[str]) -> None:
    for name in names:
        if torch._C._dispatch_has_kernel(f"{namespace}::{name}"):
            raise ValueError(
                f"as_torch_op: the operator `{namespace}::{name}` is registered already; "
                "keep what the first call returned, or choose another namespace"
            )


# ---- registration


def _register(
    torch: Any,
    module: Module,
    namespace: str,
    operators: Sequence[Operator],
    rules: Mapping[str, Callable[..., Any]],
) -> None:
    library = torch.library.Library(namespace, "FRAGMENT")
    try:
        for one in operators:
            name = one.function.name
            library.define(one.schema, tags=(torch.Tag.pt2_compliant_tag,))
            library.impl(name, _implementation(torch, module[name], one), "CompositeExplicitAutograd")
            fake = _fake(f"{namespace}::{name}", one, rules.get(name))
            torch.library.register_fake(f"{namespace}::{name}", fake, lib=library)
    except BaseException:
        library._destroy()
        raise
    _REGISTERED.append(library)


def _implementation(torch: Any, call: Function, operator: Operator) -> Callable[..., Any]:
    """The callable for torch: the Function itself if no work is needed before or after the call."""
    function, written, fills = operator.function, operator.written, operator.fills
    types = [one.type for one in function.parameters or ()]
    may_alias = function.result.holds_tensor() and any(_owns(one) for one in types)
    always_torch = any(one.is_tensor for one in types) or not function.result.holds_tensor()
    if (
        not (written or fills or may_alias)
        and always_torch
        and function.result.key not in ("ffi.Array", "ffi.List")
    ):
        return call

    def implementation(*args: Any) -> Any:
        result = call(*_filled(args, fills))
        for i in written:
            if i < len(args) and args[i] is not None:
                torch.autograd.graph.increment_version(args[i])
        return _own_results(torch, result, args)

    return implementation


def _owns(type_: Type) -> bool:
    """Whether a kernel may keep a tensor of this parameter type, and thus return it."""
    return type_.key == "ffi.Tensor" or any(map(_owns, type_.args))


def _filled(args: tuple[Any, ...], fills: Sequence[Fill]) -> tuple[Any, ...]:
    if not fills:
        return args
    values = list(args)
    for fill in fills:
        if fill.place < len(values) and values[fill.place] is None:
            values[fill.place] = fill.value
    return tuple(values)


def _own_results(torch: Any, result: Any, args: tuple[Any, ...]) -> Any:
    """Convert results for torch: its own tensors, lists for lists, and no memory of an argument.

    If a kernel returns its argument, the operator returns a copy: torch's graphs cannot hold an alias that
    the schema does not declare.
    """
    if result is None or isinstance(result, bool | int | float):
        return result
    if isinstance(result, tuple | list):
        return type(result)(_own_results(torch, one, args) for one in result)
    tensor = result if isinstance(result, torch.Tensor) else torch.from_dlpack(result)
    return tensor.clone() if _is_inside(torch, tensor.data_ptr(), args) else tensor


def _is_inside(torch: Any, address: int, values: Iterable[Any]) -> bool:
    """Whether an address lies in the memory of a tensor among the values, also seen through DLPack."""
    for one in values:
        if isinstance(one, list | tuple):
            if _is_inside(torch, address, one):
                return True
        elif isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            if storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes():
                return True
    return False


def _fake(qualname: str, operator: Operator, rule: Callable[..., Any] | None) -> fakes.Fake:
    function = operator.function
    if rule is not None:
        return _with_defaults(rule, operator)
    if function.signature is not None:
        return fakes.of_signature(function.name, function.signature)
    if function.result.key == "None":
        return fakes.nothing
    names = [one.name for one in function.parameters or ()]
    if function.result.is_tensor and function.shape_like in names:
        return _with_defaults(fakes.like(names.index(function.shape_like)), operator)
    return fakes.no_rule(qualname, function.name, result_type(function.result).replace("SymInt", "int"))


def _with_defaults(rule: Callable[..., Any], operator: Operator) -> fakes.Fake:
    """Add the trailing arguments that torch leaves out because they equal the schema's defaults."""
    defaults = [one.default for one in operator.function.parameters or ()]
    for fill in operator.fills:
        defaults[fill.place] = fill.value

    def fake(*args: Any) -> Any:
        return rule(*_filled((*args, *defaults[len(args) :]), operator.fills))

    return fake
