"""Linear models of ``ai.onnx.ml``, and what prepares features for them: scalers, encoders, imputers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_literal, c_type
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    float_attr,
    int_attr,
    ints_attr,
    label,
    operand,
    opset,
    rank,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._registry import loops
from farcall.backends.c._scores import transform, transform_of
from farcall.backends.c._trees import NUMBERS
from farcall.graph._ml_rules import class_count
from farcall.graph.dims import Dim, dims, product

_D = ir.DataType
_ML = "ai.onnx.ml"


def _floats(node: ir.Node, name: str) -> np.ndarray:
    """An attribute that is a list of floats; empty if it is not given."""
    given = node.attributes[name].as_floats() if name in node.attributes else []
    return np.array(given, np.float32)


def _features(node: ir.Node) -> tuple[Dim, Dim]:
    """The number of rows, and of features in each."""
    shape = dims(operand(node, 0))
    return product(shape[:-1]), shape[-1]


def _want_features(node: ir.Node, **lengths: int) -> None:
    """Check that the input has rows, and that attributes have one element, or one for each feature."""
    if rank(operand(node, 0)) < 1:
        raise Unsupported("a scalar; expected rows of features")
    features = _features(node)[1]
    for name, length in lengths.items():
        if length != 1 and length != features:
            raise Unsupported(f"{name} has {length} elements, for {features} features")


def _check_scaler(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS, 0)
    _want_features(node, **{name: len(_floats(node, name)) for name in ("offset", "scale")})


@loops(f"{_ML}::Scaler", check=_check_scaler)
def _scaler(node: ir.Node) -> Iterator[Step]:
    x, kernel = operand(node, 0), Kernel()
    p, q = kernel.read(x), kernel.write(node.outputs[0])
    kind = "double" if x.dtype == _D.DOUBLE else "float"
    rows, features = _features(node)
    places = {}
    for name in ("offset", "scale"):
        data = _floats(node, name)
        places[name] = f"({kind}){kernel.table(data)}[{'j' if len(data) > 1 else '0'}]"
    with kernel.loop("i", rows), kernel.loop("j", features):
        at = f"i * {kernel.dim(features)} + j"
        kernel.line(f"{q}[{at}] = (float)((({kind}){p}[{at}] - {places['offset']}) * {places['scale']});")
    yield kernel.step()


def _check_normalizer(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS, 0)
    _want_features(node)
    if str_attr(node, "norm", "MAX") not in _NORMS:
        raise Unsupported(f"norm={str_attr(node, 'norm', 'MAX')}; expected {', '.join(_NORMS)}")


# How a norm grows by an element, and its value in the end.
_NORMS = {
    "MAX": ("norm = fabs(v) > norm ? fabs(v) : norm;", "norm"),
    "L1": ("norm += fabs(v);", "norm"),
    "L2": ("norm += v * v;", "sqrt(norm)"),
}


@loops(f"{_ML}::Normalizer", check=_check_normalizer)
def _normalizer(node: ir.Node) -> Iterator[Step]:
    x, kernel = operand(node, 0), Kernel()
    p, q = kernel.read(x), kernel.write(node.outputs[0])
    rows, features = _features(node)
    grow, value = _NORMS[str_attr(node, "norm", "MAX")]
    with kernel.loop("i", rows):
        kernel.line(
            f"const {c_type(x.dtype)}* const row = {p} + i * {kernel.dim(features)};\ndouble norm = 0;"
        )
        with kernel.loop("j", features):
            kernel.line(f"const double v = (double)row[j];\n{grow}")
        kernel.line(f"norm = {value};")
        with kernel.loop("j", features):  # a row of zeros stays one
            target = f"{q}[i * {kernel.dim(features)} + j]"
            kernel.line(
                f"{target} = (float)((double)row[j] / (norm > 1e-30 ? norm : norm == norm ? 1e-30 : norm));"
            )
    yield kernel.step()


def _check_binarizer(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS, 0)


@loops(f"{_ML}::Binarizer", check=_check_binarizer)
def _binarizer(node: ir.Node) -> Iterator[Step]:
    x, kernel = operand(node, 0), Kernel()
    p, q = kernel.read(x), kernel.write(node.outputs[0])
    threshold = c_literal(float_attr(node, "threshold", 0.0), _D.DOUBLE)
    with kernel.loop("i", product(dims(x))):
        kernel.line(f"{q}[i] = (double){p}[i] > {threshold};")
    yield kernel.step()


def _imputed(node: ir.Node) -> tuple[np.ndarray, float | int]:
    """The values that are put in, and the value in whose place they are put."""
    floats = _floats(node, "imputed_value_floats")
    if len(floats):
        return floats, float_attr(node, "replaced_value_float", 0.0)
    return np.array(ints_attr(node, "imputed_value_int64s", []), np.int64), int_attr(
        node, "replaced_value_int64", 0
    )


def _check_imputer(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS, 0)
    values, _ = _imputed(node)
    if not len(values):
        raise Unsupported("no value to put in is given: imputed_value_floats or imputed_value_int64s")
    _want_features(node, imputed_value=len(values))


@loops(f"{_ML}::Imputer", check=_check_imputer)
def _imputer(node: ir.Node) -> Iterator[Step]:
    x, kernel = operand(node, 0), Kernel()
    p, q = kernel.read(x), kernel.write(node.outputs[0])
    rows, features = _features(node)
    values, replaced = _imputed(node)
    assert x.dtype is not None  # noqa: S101 - checked before
    table = kernel.table(values.astype(x.dtype.numpy()))
    is_missing = (
        "v != v"
        if replaced != replaced
        else f"v == {c_literal(replaced, _D.DOUBLE if isinstance(replaced, float) else _D.INT64)}"
    )
    with kernel.loop("i", rows), kernel.loop("j", features):
        kernel.line(f"const {c_type(x.dtype)} v = {p}[i * {kernel.dim(features)} + j];")
        value = f"{table}[{'j' if len(values) > 1 else '0'}]"
        kernel.line(f"{q}[i * {kernel.dim(features)} + j] = {is_missing} ? {value} : v;")
    yield kernel.step()


def _check_extractor(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS, 0)
    want_dtypes(node, {_D.INT64}, 1)
    _want_features(node)


@loops(f"{_ML}::ArrayFeatureExtractor", check=_check_extractor)
def _array_feature_extractor(node: ir.Node) -> Iterator[Step]:
    x, chosen, kernel = operand(node, 0), operand(node, 1), Kernel()
    p, at, q = kernel.read(x), kernel.read(chosen), kernel.write(node.outputs[0])
    rows, features = _features(node)
    count = kernel.dim(product(dims(chosen)))
    with kernel.loop("j", count):
        kernel.index("column", f"{at}[j]", kernel.dim(features), label(node), "the features")
        with kernel.loop("i", rows):
            kernel.line(f"{q}[i * {count} + j] = {p}[i * {kernel.dim(features)} + column];")
    yield kernel.step()


def _check_vectorizer(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS)
    counts = ints_attr(node, "inputdimensions", [])
    if len(counts) != len(node.inputs) or min(counts, default=0) < 0:
        raise Unsupported(f"inputdimensions={counts} for {len(node.inputs)} operands")
    for index in range(len(node.inputs)):
        if (
            rank(operand(node, index)) not in (1, 2)
            or dims(operand(node, index))[0] != dims(operand(node, 0))[0]
        ):
            raise Unsupported(f"input {index} of shape {[str(d) for d in dims(operand(node, index))]}")


@loops(f"{_ML}::FeatureVectorizer", check=_check_vectorizer)
def _feature_vectorizer(node: ir.Node) -> Iterator[Step]:
    """Put the features of all operands side by side; too many are cut off, and missing ones are 0."""
    kernel, counts = Kernel(), ints_attr(node, "inputdimensions", [])
    q, first = kernel.write(node.outputs[0]), 0
    rows = dims(operand(node, 0))[0]
    for index, count in enumerate(counts):
        x = operand(node, index)
        p, given = kernel.read(x), kernel.dim(dims(x)[1]) if rank(x) == 2 else "1"
        with kernel.loop("i", rows), kernel.loop("j", str(count)):
            target = f"{q}[i * {sum(counts)} + {first} + j]"
            kernel.line(f"{target} = j < {given} ? (float){p}[i * {given} + j] : 0;")
        first += count
    yield kernel.step()


def _check_one_hot(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS, 0)
    if not ints_attr(node, "cats_int64s", []):
        raise Unsupported("cats_int64s is empty; categories that are strings have no C type")


@loops(f"{_ML}::OneHotEncoder", check=_check_one_hot)
def _one_hot_encoder(node: ir.Node) -> Iterator[Step]:
    x, kernel = operand(node, 0), Kernel()
    p, q = kernel.read(x), kernel.write(node.outputs[0])
    categories = np.array(ints_attr(node, "cats_int64s", []), np.int64)
    table = kernel.table(categories)
    with kernel.loop("i", product(dims(x))):
        kernel.line(f"const int64_t v = {scalar.convert(x.dtype, _D.INT64, f'{p}[i]')};\n_Bool found = 0;")
        with kernel.loop("j", str(len(categories))):
            kernel.line(f"const _Bool same = v == {table}[j];")
            kernel.line(f"{q}[i * {len(categories)} + j] = same;\nfound |= same;")
        if not int_attr(node, "zeros", 1):
            parts = (f"{label(node)}: element ", "i", " is ", "v", ", which is none of its categories")
            kernel.line(f"if (!found) {kernel.fail_with('ValueError', *parts)}")
    yield kernel.step()


def _mapping(node: ir.Node) -> tuple[np.ndarray, np.ndarray, object]:
    """The keys and values of a LabelEncoder, and the value of what is no key."""
    found = []
    for what in ("keys", "values"):
        if f"{what}_tensor" in node.attributes:
            found.append(node.attributes[f"{what}_tensor"].as_tensor().numpy().ravel())
        elif f"{what}_int64s" in node.attributes:
            found.append(np.array(node.attributes[f"{what}_int64s"].as_ints(), np.int64))
        elif f"{what}_floats" in node.attributes:
            found.append(_floats(node, f"{what}_floats"))
        else:
            raise Unsupported(f"it has no {what} that are numbers; strings have no C type")
    keys, values = found
    if len(keys) != len(values):
        raise Unsupported(f"{len(keys)} keys and {len(values)} values")
    if "default_tensor" in node.attributes:
        return keys, values, node.attributes["default_tensor"].as_tensor().numpy().ravel()[0]
    if values.dtype.kind == "f":
        return keys, values, float_attr(node, "default_float", -0.0)
    return keys, values, int_attr(node, "default_int64", -1)


_ENCODED = FLOATS | {_D.INT64, _D.INT32, _D.INT16}


def _check_label_encoder(node: ir.Node) -> None:
    keys, values, _ = _mapping(node)
    want_dtypes(node, _ENCODED, 0)
    x, out = operand(node, 0), node.outputs[0]
    if x.dtype != _D.from_numpy(keys.dtype) or out.dtype != _D.from_numpy(values.dtype):
        raise Unsupported(f"keys of {keys.dtype} and values of {values.dtype} for {x.dtype} and {out.dtype}")


@loops(f"{_ML}::LabelEncoder", check=_check_label_encoder)
def _label_encoder(node: ir.Node) -> Iterator[Step]:
    """Search in the sorted keys. A NaN among them comes last, and since opset 4 stands for all."""
    x, out, kernel = operand(node, 0), node.outputs[0], Kernel()
    p, q = kernel.read(x), kernel.write(out)
    keys, values, default = _mapping(node)
    if opset(node) < 4:
        keys, values = keys[keys == keys], values[keys == keys]
    unique, first = np.unique(keys[::-1], return_index=True)  # of equal keys, the last counts
    chosen = values[::-1][first]
    places = kernel.table(unique), kernel.table(chosen)
    fallback = c_literal(default, out.dtype)
    with kernel.loop("i", product(dims(x))):
        kernel.line(f"const {c_type(x.dtype)} v = {p}[i];\nint64_t low = 0, high = {len(unique)};")
        with kernel.block("while (low < high)"):
            kernel.line("const int64_t middle = low + (high - low) / 2;")
            kernel.line(f"const {c_type(x.dtype)} key = {places[0]}[middle];")
            kernel.line("if (key < v || (v != v && key == key)) low = middle + 1;\nelse high = middle;")
        same = f"({places[0]}[low] == v || (v != v && {places[0]}[low] != {places[0]}[low]))"
        kernel.line(f"{q}[i] = low < {len(unique)} && {same} ? {places[1]}[low] : {fallback};")
    yield kernel.step()


def _weights(node: ir.Node, scores: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The coefficients, a row for each score, and the intercepts."""
    features, given = _features(node)[1], _floats(node, "coefficients")
    if not isinstance(features, int):
        raise Unsupported("the number of features is known only at run time")
    if scores < 1 or len(given) != scores * features:
        raise Unsupported(f"{len(given)} coefficients for {scores} scores of {features} features")
    intercepts = _floats(node, "intercepts")
    if len(intercepts) not in (0, scores):
        raise Unsupported(f"{len(intercepts)} intercepts for {scores} scores")
    return given.reshape(scores, features), intercepts if len(intercepts) else None


def _check_linear(node: ir.Node) -> None:
    want_dtypes(node, NUMBERS, 0)
    if rank(operand(node, 0)) not in (1, 2):
        raise Unsupported(f"rank {rank(operand(node, 0))}; expected rows of features")
    transform_of(node)
    _weights(node, _score_count(node))


def _score_count(node: ir.Node) -> int:
    """The number of scores that are products of features and coefficients."""
    if node.op_type == "LinearRegressor":
        return int_attr(node, "targets", 1)
    features = _features(node)[1]
    return len(_floats(node, "coefficients")) // features if isinstance(features, int) and features else 0


def _products(kernel: Kernel, node: ir.Node, count: int) -> None:
    """Write the products of row ``i`` to ``out``."""
    coefficients, intercepts = _weights(node, count)
    x, features = operand(node, 0), coefficients.shape[1]
    w = kernel.table(coefficients)
    with kernel.loop("k", str(count)):
        start = f"{kernel.table(intercepts)}[k]" if intercepts is not None else "0"
        kernel.line(f"double sum = {start};")
        with kernel.loop("j", str(features)):
            kernel.line(
                f"sum += (double){kernel.read(x)}[i * {features} + j] * (double){w}[k * {features} + j];"
            )
        kernel.line("out[k] = sum;")


@loops(f"{_ML}::LinearRegressor", check=_check_linear)
def _linear_regressor(node: ir.Node) -> Iterator[Step]:
    kernel, count = Kernel(), _score_count(node)
    q = kernel.write(node.outputs[0])
    kernel.line(f"double* const out = {kernel.scratch(_D.DOUBLE, count)};")
    with kernel.loop("i", _features(node)[0]):
        _products(kernel, node, count)
        transform(kernel, transform_of(node), "out", str(count))
        with kernel.loop("k", str(count)):
            kernel.line(f"{q}[i * {count} + k] = (float)out[k];")
    yield kernel.step()


def _check_linear_classifier(node: ir.Node) -> None:
    _check_linear(node)
    classes, scores = class_count(node), _score_count(node)
    if not ints_attr(node, "classlabels_ints", []):
        raise Unsupported("its class labels are no integers; strings have no C type")
    if not (classes == scores or (classes == 2 and scores == 1)):
        raise Unsupported(f"{classes} classes for {scores} scores")


@loops(f"{_ML}::LinearClassifier", check=_check_linear_classifier)
def _linear_classifier(node: ir.Node) -> Iterator[Step]:
    """The class of the largest score. One score for two classes is that of the second."""
    kernel, count = Kernel(), _score_count(node)
    labels = np.array(ints_attr(node, "classlabels_ints", []), np.int64)
    names, total = kernel.table(labels), len(labels)
    chosen, scores = kernel.write(node.outputs[0]), kernel.write(node.outputs[1])
    kernel.line(f"double* const out = {kernel.scratch(_D.DOUBLE, total)};")
    with kernel.loop("i", _features(node)[0]):
        _products(kernel, node, count)
        if count < total:
            kernel.line("out[1] = out[0], out[0] = -out[1];")
        kernel.line("int64_t best = 0;")
        kernel.line(f"for (int64_t k = 1; k < {total}; ++k) best = out[k] > out[best] ? k : best;")
        transform(kernel, transform_of(node), "out", str(total))
        kernel.line(f"{chosen}[i] = {names}[best];")
        with kernel.loop("k", str(total)):
            kernel.line(f"{scores}[i * {total} + k] = (float)out[k];")
    yield kernel.step()
