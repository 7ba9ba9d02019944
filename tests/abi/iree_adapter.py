"""The real IREE runtime behind FunctionAbi: converts packed values to its buffers and lists, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import iree.runtime as rt
import numpy as np

from farcall.abi import FunctionAbi, Leaf, ListSpec, ScalarSpec, Signature, TensorSpec

# the names of DLPack's dtypes in HalElementType; a dtype that it lacks is passed as an integer of its size
_ELEMENTS = {
    "bool": "BOOL_8",
    **{f"int{bits}": f"INT_{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UINT_{bits}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FLOAT_{bits}" for bits in (16, 32, 64)},
    "bfloat16": "BFLOAT_16",
    "float8_e4m3fn": "FLOAT_8_E4M3_FN",
    "complex64": "COMPLEX_64",
    "complex128": "COMPLEX_128",
}
_BITS = {"float16": "float16", "bfloat16": "bfloat16"}  # scalars that the VM has no registers for


class IreeModule:
    """A compiled module; ``module["f"]`` calls through FunctionAbi, ``module.original("f")`` by IREE."""

    def __init__(self, vmfb: bytes) -> None:
        self.config = rt.Config("local-sync")
        hal = rt.create_hal_module(self.config.vm_instance, self.config.device)
        self._module = rt.VmModule.copy_buffer(self.config.vm_instance, vmfb)
        self.context = rt.VmContext(self.config.vm_instance, [hal, self._module])

    def __getitem__(self, name: str) -> IreeFunction:
        return IreeFunction(self, self._module.lookup_function(name))

    def original(self, name: str) -> Any:
        """The function as IREE calls it, without FunctionAbi."""
        return rt.FunctionInvoker(self.context, self.config.device, self._module.lookup_function(name))


class IreeFunction:
    """One function."""

    def __init__(self, module: IreeModule, function: Any) -> None:
        self._module = module
        self._function = function
        self.signature = Signature.from_iree(function.reflection)
        self.abi = FunctionAbi(self.signature)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arguments = self._list(self.signature.inputs, self.abi.pack_inputs(*args, **kwargs))
        results = rt.VmVariantList(self.abi.raw_result_arity)
        self._module.context.invoke(self._function, arguments, results)
        assert results.size == self.abi.raw_result_arity
        return self.abi.unpack_results(self._taken(self.signature.outputs, results))

    def _list(self, leaves: Sequence[Leaf], values: Sequence[Any]) -> Any:
        made = rt.VmVariantList(len(leaves))
        for leaf, value in zip(leaves, values, strict=True):
            self._push(made, leaf, value)
        return made

    def _push(self, made: Any, leaf: Leaf, value: Any) -> None:
        if isinstance(leaf, ListSpec):
            items = leaf.items if len(leaf.items) == len(value) else leaf.items * len(value)
            made.push_list(self._list(items, value))
        elif isinstance(leaf, TensorSpec) and leaf.access != "in":
            made.push_ref(self._shared(value).ref)
        elif not isinstance(leaf, ScalarSpec):
            made.push_ref(self._view(value).ref)
        elif leaf.dtype in _BITS:
            made.push_int(int(np.array(value, numpy_dtype(leaf.dtype)).view("uint16")))
        elif isinstance(value, float):
            made.push_float(value)
        else:
            made.push_int(int(value))

    def _shared(self, value: Any) -> Any:
        """A view of the caller's memory, which must be aligned to 16 bytes: otherwise IREE crashes."""
        array = value if isinstance(value, np.ndarray) else value.numpy()
        assert array.ctypes.data % 16 == 0
        buffer = self._module.config.device.allocator.import_host_allocation(
            array,
            memory_type=rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE,
            allowed_usage=rt.BufferUsage.DEFAULT,
        )
        return rt.HalBufferView(buffer, array.shape, getattr(rt.HalElementType, _ELEMENTS[array.dtype.name]))

    def _view(self, value: Any) -> Any:
        array = value if isinstance(value, np.ndarray) else value.numpy()
        element = getattr(rt.HalElementType, _ELEMENTS[array.dtype.name])
        plain = array.view(f"u{array.itemsize}") if array.itemsize <= 2 else array  # bfloat16 has no buffer
        device = self._module.config.device
        return device.allocator.allocate_buffer_copy(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
            device=device,
            buffer=np.ascontiguousarray(plain).reshape(array.shape),
            element_type=element,
        )

    def _taken(self, leaves: Sequence[Leaf], results: Any) -> list[Any]:
        return [self._take(leaf, results, i) for i, leaf in enumerate(leaves)]

    def _take(self, leaf: Leaf, results: Any, i: int) -> Any:
        if isinstance(leaf, ListSpec):
            return self._taken(leaf.items, results.get_as_list(i))
        if isinstance(leaf, ScalarSpec):
            number = results.get_variant(i)
            if leaf.dtype in _BITS:
                return float(np.array(number, "uint16").view(numpy_dtype(leaf.dtype)))
            return number
        view = results.get_as_object(i, rt.HalBufferView)
        dtype = numpy_dtype(leaf.dtype) if isinstance(leaf, TensorSpec) else None
        return rt.DeviceArray(self._module.config.device, view, True, dtype).to_host()


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype, from ml_dtypes if numpy lacks it."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))
