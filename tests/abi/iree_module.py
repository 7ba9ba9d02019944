"""One module for the real IREE compiler: a function for each kind of argument and result."""

from __future__ import annotations

import json
from typing import Any

Records = list[Any]
F4 = ["ndarray", "f32", 1, 4]


def source() -> str:
    """The module in MLIR, with the metadata that IREE's compiler does not generate."""
    return "module @calls {\n" + "\n".join([*_ARITHMETIC, *_SHAPES, *_SCALARS, *_STRUCTURES]) + "\n}\n"


def _function(
    name: str, arguments: str, results: str, body: str, a: Records | None = None, r: Records | None = None
) -> str:
    """A function in MLIR; the result types are appended to the ``return`` in the last line of the body."""
    attributes = ""
    if a is not None:
        metadata = json.dumps({"a": a, "r": r or [], "v": 1}).replace('"', '\\"')
        attributes = f' attributes {{ iree.reflection = {{ iree.abi = "{metadata}" }} }}'
    ending = f" : {results}" if results else ""
    return f"func.func @{name}({arguments}) -> ({results}){attributes} {{\n{body}{ending}\n}}"


def _sum(name: str, element: str, operation: str) -> str:
    tensor, record = f"tensor<4x{element}>", ["ndarray", element, 1, 4]
    body = f"%0 = {operation} %a, %b : {tensor}\nreturn %0"
    return _function(name, f"%a: {tensor}, %b: {tensor}", tensor, body, [record, record], [record])


def _complex_sum(name: str, element: str) -> str:
    tensor, record = f"tensor<4x{element}>", ["ndarray", element, 1, 4]
    body = f"""
      %e = tensor.empty() : {tensor}
      %0 = linalg.generic {{indexing_maps = [{", ".join(["affine_map<(i) -> (i)>"] * 3)}],
           iterator_types = ["parallel"]}} ins(%a, %b : {tensor}, {tensor}) outs(%e : {tensor}) {{
        ^bb0(%x: {element}, %y: {element}, %z: {element}):
          %s = complex.add %x, %y : {element}
          linalg.yield %s : {element}
      }} -> {tensor}
      return %0"""
    return _function(name, f"%a: {tensor}, %b: {tensor}", tensor, body, [record, record], [record])


def _same(name: str, types: str, records: Records) -> str:
    """A function that returns its arguments."""
    names = [f"%a{i}" for i in range(len(types.split(", ")))]
    arguments = ", ".join(f"{one}: {kind}" for one, kind in zip(names, types.split(", "), strict=True))
    return _function(name, arguments, types, f"return {', '.join(names)}", records, records)


_ARITHMETIC = [
    *(
        _sum(f"add_{element}", element, "arith.addf" if "f" in element else "arith.addi")
        for element in ("f16", "bf16", "f32", "f64", "i1", "i8", "i16", "i32", "i64")
    ),
    _complex_sum("add_complex_f32", "complex<f32>"),
    _complex_sum("add_complex_f64", "complex<f64>"),
    _function(
        "f8_to_f32",
        "%a: tensor<4xf8E4M3FN>",
        "tensor<4xf32>",
        "%0 = arith.extf %a : tensor<4xf8E4M3FN> to tensor<4xf32>\nreturn %0",
        [["ndarray", "f8E4M3FN", 1, 4]],
        [F4],
    ),
    _same("id_ui8", "tensor<4xui8>", [["ndarray", "ui8", 1, 4]]),
    _same("id_si8", "tensor<4xsi8>", [["ndarray", "si8", 1, 4]]),
]

_SHAPES = [
    _function(
        "matmul",
        "%a: tensor<?x?xf32>, %b: tensor<?x?xf32>",
        "tensor<?x?xf32>",
        """
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %z = arith.constant 0.0 : f32
        %m = tensor.dim %a, %c0 : tensor<?x?xf32>
        %n = tensor.dim %b, %c1 : tensor<?x?xf32>
        %e = tensor.empty(%m, %n) : tensor<?x?xf32>
        %f = linalg.fill ins(%z : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
        %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>)
                           outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
        return %0""",
        [["ndarray", "f32", 2, None, None]] * 2,
        [["ndarray", "f32", 2, None, None]],
    ),
    _function(
        "negate",
        "%a: tensor<?x3xi32>",
        "tensor<?x3xi32>, tensor<?x3xi32>",
        """
        %z = arith.constant 0 : i32
        %c0 = arith.constant 0 : index
        %n = tensor.dim %a, %c0 : tensor<?x3xi32>
        %e = tensor.empty(%n) : tensor<?x3xi32>
        %s = linalg.fill ins(%z : i32) outs(%e : tensor<?x3xi32>) -> tensor<?x3xi32>
        %0 = arith.subi %s, %a : tensor<?x3xi32>
        return %0, %a""",
        [["ndarray", "i32", 2, None, 3]],
        [["ndarray", "i32", 2, None, 3]] * 2,
    ),
    _function("nothing", "", "", "return", [], []),
    _function(
        "constant",
        "",
        "tensor<2x2xf32>",
        "%0 = arith.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>\nreturn %0",
        [],
        [["ndarray", "f32", 2, 2, 2]],
    ),
    _same("rank0", "tensor<f32>", [["ndarray", "f32", 0]]),
    _same("unranked", "tensor<4xf32>", [["ndarray", "f32", None]]),
    _same("untyped", "tensor<4xf32>", [None]),
    _function(
        "declared",
        '%a: tensor<?xf32> {iree.abi.name = "lhs"}, %b: i32',
        "tensor<?xf32>, i32",
        "return %a, %b",
    ),
    _function(
        "into",
        "%a: tensor<4xf32>, %o: tensor<4xf32> {iree.abi.output = 0 : index}",
        "tensor<4xf32>",
        "%0 = arith.addf %a, %a : tensor<4xf32>\nreturn %0",
    ),
]

_SCALARS = [
    _same("scalars", "i32, i64, f32, f64", ["i32", "i64", "f32", "f64"]),
    _same("small", "i1, i8, index", ["i1", "i8", "index"]),
    _same("half", "f16, bf16", ["f16", "bf16"]),
    _function(
        "narrow",
        "%a: i8, %b: i32",
        "i8, i8, i32",
        """
        %0 = arith.addi %a, %a : i8
        %1 = arith.subi %b, %b : i32
        %2 = arith.subi %1, %b : i32
        return %0, %0, %2""",
        ["i8", "i32"],
        ["i8", "ui8", "ui32"],
    ),
    _function(
        "scale",
        "%a: f32, %b: f32",
        "f32",
        "%0 = arith.mulf %a, %b : f32\nreturn %0",
        ["f32", ["named", "by", "f32"]],
        ["f32"],
    ),
]


def _item(i: int) -> str:
    return f"""
        %c{i} = arith.constant {i} : index
        %v{i} = util.list.get %l[%c{i}] : !util.list<?> -> !hal.buffer_view
        %t{i} = hal.tensor.import %v{i} : !hal.buffer_view -> tensor<4xf32>"""


_STRUCTURES = [
    _function(
        "named",
        "%a: tensor<4xf32>, %b: tensor<4xf32>",
        "tensor<4xf32>, tensor<4xf32>",
        """
        %0 = arith.subf %a, %b : tensor<4xf32>
        %1 = arith.addf %a, %b : tensor<4xf32>
        return %0, %1""",
        [["named", "a", F4], ["named", "b", F4]],
        [["sdict", ["diff", F4], ["sum", F4]]],
    ),
    _function(
        "swap",
        "%l: !util.list<?>",
        "tensor<4xf32>, tensor<4xf32>",
        _item(0) + _item(1) + "\nreturn %t1, %t0",
        [["slist", F4, F4]],
        [["slist", F4, F4]],
    ),
    _function(
        "pair",
        "%l: !util.list<?>",
        "tensor<4xf32>, !util.list<?>",
        _item(0)
        + _item(1)
        + """
        %two = arith.constant 2 : index
        %n = util.list.create %two : !util.list<?>
        util.list.resize %n, %two : !util.list<?>
        util.list.set %n[%c0], %v0 : !hal.buffer_view -> !util.list<?>
        util.list.set %n[%c1], %v1 : !hal.buffer_view -> !util.list<?>
        %s = arith.addf %t0, %t1 : tensor<4xf32>
        return %s, %n""",
        [["sdict", ["x", F4], ["y", F4]]],
        [["stuple", F4, ["slist", F4, F4]]],
    ),
    _function(
        "count",
        "%l: !util.list<?>",
        "i64",
        """
        %n = util.list.size %l : !util.list<?>
        %0 = arith.index_cast %n : index to i64
        return %0""",
        [["py_homogeneous_list", F4]],
        ["i64"],
    ),
]
