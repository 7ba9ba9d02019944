"""Modules and other objects that live on a server."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from farcall import _core, _html
from farcall.errors import MissingFunctionError, ProtocolError
from farcall.rpc.client._remote import Remote
from farcall.rpc.client._telemetry import observe
from farcall.rpc.client._timing import Timing, TimingOptions

if TYPE_CHECKING:
    from farcall._core import Function
    from farcall._progress import Report
    from farcall.abi import Signature


_METADATA = "ffi.ModuleGetFunctionMetadata"
_ITEMS, _PLAIN_ITEMS = "farcall.rpc.items", "farcall.rpc.plain_items"
_PLAIN = (str, int, float, type(None))  # bool is an int


class RemoteModule(_core.RemoteRef):
    """A module on a server: functions by name. From :meth:`Session.load_module`, or the result of a call.

    ``"f" in module`` works as with a dict. So do ``len(module)``, ``for name in module``, ``module.items()``
    and ``dict(module)``, for the module's own functions; these ask the server, which must be farcall's.

    If the library names the parameters of a function, as those of :mod:`farcall.cpp` do, calls may use the
    names, and ``inspect.signature`` shows them. The first such call, or question, fetches the names.

    It can be passed to remote functions; the server releases it when its last reference here is gone.

    Attributes:
        name: of the file that it came from, if known.
    """

    name = "a module"
    _signatures: Mapping[str, Signature] = MappingProxyType({})

    def __init__(self, ref: _core.RemoteRef) -> None:
        endpoint = ref.endpoint
        self._remote = Remote(endpoint, endpoint.peer)
        self._functions: dict[tuple[str, bool], Function | None] = {}

    @classmethod
    def loaded(
        cls,
        remote: Remote,
        loader: tuple[Any, ...],
        name: str,
        file: str,
        signatures: Mapping[str, Signature],
    ) -> Self:
        """Load the file ``name`` of the session's folder; ``file`` is its name on the client.

        ``remote`` is the session's, ``loader`` is the function that loads the file, with its first arguments;
        ``signatures`` are those of the file's manifest.
        """
        module = cls.renamed(remote.call(*loader, name), file)
        module._remote = remote
        module._signatures = signatures
        return module

    @classmethod
    def renamed(cls, module: object, name: str) -> Self:
        """The module that a call returned, under the name that messages use."""
        if not isinstance(module, cls):
            raise ProtocolError(f"{name}: the server answered with {module!r} where a module was expected")
        module.name = name
        return module

    # ---- functions

    def get_function(self, name: str, query_imports: bool = False) -> Function:
        """The function ``name`` of the module; call it like a local one.

        Args:
            name: The function.
            query_imports: Look also in the modules that it imports, depth first.

        Raises:
            MissingFunctionError: the module has no function of that name. It is an AttributeError and a
                KeyError.
        """
        function = self._find(name, query_imports)
        if function is None:
            meant = self._remote.did_you_mean(name, "farcall.rpc.module_functions", self)
            raise MissingFunctionError(
                f"module {self.name} on {self._remote.url} has no function `{name}`{meant}; "
                f"`farcall inspect {self.name}` lists what it has"
            )
        return function

    def __getitem__(self, name: str) -> Function:
        return self.get_function(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.implements_function(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.function_names())

    def __len__(self) -> int:
        return len(self.function_names())

    def __bool__(self) -> bool:
        return True  # without a question to the server

    def keys(self) -> KeysView[str]:
        """The names of its functions, sorted."""
        return KeysView(self)

    def values(self) -> ValuesView[Function]:
        """Its functions, in the order of their names."""
        return ValuesView(self)

    def items(self) -> ItemsView[str, Function]:
        """Pairs of name and function, in the order of the names."""
        return ItemsView(self)

    def __call__(self, *args: Any) -> Any:
        return self.get_function("main")(*args)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether the module has a function ``name``, with ``query_imports`` also in an imported module."""
        return self._find(name, query_imports) is not None

    def function_names(self) -> list[str]:
        """The names of its functions, sorted. Only farcall servers list them."""
        return self._remote.names("farcall.rpc.module_functions", self)

    def _find(self, name: str, query_imports: bool) -> Function | None:
        key = (name, query_imports)
        if key not in self._functions:
            helper = "tvm.rpc.server.ModuleGetFunction"
            function = self._remote.call(helper, self, name, query_imports)
            if function is not None:
                function = _core.rename_remote(self._remote.check(_core.Function, helper, function), name)
                if name in self._signatures:
                    function.signature = self._signatures[name]
                else:
                    # Another reference, since a function that refers to its own module would keep both alive.
                    module = _core.RemoteRef(self)
                    _core.describe_by(function, partial(_metadata, self._remote, module, name, query_imports))
                observe(function, self._remote.around)
            self._functions[key] = function
        return self._functions[key]

    # ---- properties

    @property
    def kind(self) -> str:
        """The module's kind: ``"library"``, or another."""
        return self._remote.call_for(str, "ffi.ModuleGetKind", self)

    def inspect_source(self, format: str = "") -> str:
        """The source code that the module keeps, in the ``format`` that it knows; empty if it keeps none."""
        return self._remote.call_for(str, "ffi.ModuleInspectSource", self, format)

    def get_function_metadata(self, name: str, query_imports: bool = False) -> dict[str, Any] | None:
        """The metadata of the function ``name``, read from the library's JSON; None if there is none.

        With ``query_imports``, the function may be one of an imported module.
        """
        text = self._remote.call(_METADATA, self, name, query_imports)
        return None if text is None else self._remote.parse(dict, _METADATA, text)

    def import_module(self, module: RemoteModule) -> None:
        """Make another module's functions reachable from this one, on the server.

        Raises:
            RuntimeError: ``module`` is this module, or imports it.
        """
        self._remote.call("tvm.rpc.server.ImportModule", self, module)
        self._functions.clear()

    def benchmark(self, name: str, *args: Any, progress: Report | None = None, **options: Any) -> Timing:
        """Measure a function of the module on the server, by the clock of the device.

        Args:
            name: of the function.
            args: the function's arguments; local tensors are copied to the server first.
            progress: as for :func:`farcall.benchmark`.
            options: see :class:`~farcall.rpc.TimingOptions`.

        Returns:
            Seconds per call, one number for each repeat.
        """
        return TimingOptions.of(options).run(self._remote, self, name, args, progress)

    def __repr__(self) -> str:
        return f"<module {self.name} on {self._remote.url}>"

    def _known(self) -> dict[str, str]:
        """The functions that are known without a question to the server, and their Signatures as text."""
        found = {name: "" for (name, _), function in self._functions.items() if function is not None}
        return found | {name: str(signature) for name, signature in self._signatures.items()}

    def _ipython_key_completions_(self) -> list[str]:
        return [*self._known()]

    def _repr_html_(self) -> str:
        """The table that notebooks show, without a question to the server."""
        note = "" if self._signatures else "function_names() asks the server for all names"
        return _html.table(repr(self)[1:-1], ("function", "signature"), self._known().items(), note)


def _metadata(remote: Remote, module: _core.RemoteRef, name: str, query_imports: bool) -> str | None:
    """What the library says of its function; None where it says nothing, or the server cannot be asked."""
    helper = remote.helper_or_none(_METADATA)
    text = None if helper is None else helper(module, name, query_imports)
    return text if isinstance(text, str) else None


class RemoteObject(_core.RemoteRef):
    """Any other object on a server. You can pass it back; its last reference releases it."""


class RemoteMap(RemoteObject, Mapping[Any, Any]):
    """A dict that a server returned. You can read it like a dict, and pass it back to the server's functions.

    Its items are fetched when one is first read, and kept: later changes on the server do not show. Tensors,
    functions and dicts among the values stay on the server.
    """

    def __init__(self, ref: _core.RemoteRef) -> None:
        self._items: dict[Any, Any] | None = None

    def __getitem__(self, key: Any) -> Any:
        return self._fetched()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fetched())

    def __len__(self) -> int:
        return len(self._fetched())

    def to_python(self) -> dict[Any, Any]:
        """A dict, in which dicts among the values, also those in lists, are dicts, too.

        Raises:
            RemoteError: the server cannot list the items, because it is not farcall's.
        """
        return {_to_python(key): _to_python(value) for key, value in self.items()}

    def _fetched(self) -> dict[Any, Any]:
        if self._items is None:
            remote = Remote(self.endpoint, self.endpoint.peer)
            flat = _plain_items(remote, self)
            if flat is None:
                flat = _items(remote, self)
            self._items = dict(zip(flat[::2], flat[1::2], strict=True))
        return self._items


def _plain_items(remote: Remote, mapping: RemoteMap) -> list[Any] | None:
    """Keys and values in turn, by one call; None: JSON lacks some of them, or the server is older."""
    helper = remote.helper_or_none(_PLAIN_ITEMS)
    text = None if helper is None else helper(mapping)
    if text is None:
        return None
    flat = remote.parse(list, _PLAIN_ITEMS, text)
    if len(flat) % 2 or not all(isinstance(one, _PLAIN) for one in flat):
        raise ProtocolError(f"{remote.url} answered `{_PLAIN_ITEMS}` with {text!r:.80}")
    return flat


def _items(remote: Remote, mapping: RemoteMap) -> list[Any]:
    """Keys and values in turn, each as itself."""
    flat: list[Any] = []
    count = 1
    while len(flat) < 2 * count:
        match remote.call(_ITEMS, mapping, len(flat) // 2):
            case (int(count), *more) if (more and len(more) % 2 == 0) or not count:
                flat += more
            case answer:
                raise ProtocolError(f"{remote.url} answered `{_ITEMS}` with {answer!r:.80}")
    return flat


def _to_python(value: Any) -> Any:
    if isinstance(value, RemoteMap):
        return value.to_python()
    return tuple(map(_to_python, value)) if type(value) is tuple else value


_CLASSES = {
    _core.TYPE_INDICES["module"]: RemoteModule,
    _core.TYPE_INDICES["map"]: RemoteMap,
    _core.TYPE_INDICES["dict"]: RemoteMap,
}


def _wrap(ref: _core.RemoteRef) -> _core.RemoteRef:
    return _CLASSES.get(ref.type_index, RemoteObject)(ref)


_core.set_remote_object_hook(_wrap)
