"""The output dtypes and dims of the operators of ``ai.onnx.ml``, for most of which ONNX infers none."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from farcall.graph._shape_rules import rule
from farcall.graph._view import Dims, NodeView, NotKnownError, PartialDims
from farcall.graph.dims import floordiv, product

ML = "ai.onnx.ml"
_FLOAT, _INT64, _STRING = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.STRING

_FLOATS = (
    "Scaler",
    "Normalizer",
    "FeatureVectorizer",
    "OneHotEncoder",
    "LinearRegressor",
    "SVMRegressor",
    "TreeEnsembleRegressor",
)
_LIKE_INPUT = ("Binarizer", "Imputer", "ArrayFeatureExtractor", "TreeEnsemble")
_CLASSIFIERS = ("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")
_VALUES = {"values_int64s": _INT64, "values_floats": _FLOAT, "values_strings": _STRING}


def set_ml_dtypes(node: ir.Node) -> None:
    """Give the outputs of a node of ``ai.onnx.ml`` their dtypes, where they are not known."""
    for value, dtype in zip(node.outputs, _dtypes(node), strict=False):
        if value.dtype is None and dtype is not None:
            value.type = ir.TensorType(dtype)


def _dtypes(node: ir.Node) -> Sequence[ir.DataType | None]:
    if node.op_type in _FLOATS:
        return [_FLOAT]
    if node.op_type in _LIKE_INPUT:
        return [node.inputs[0].dtype if node.inputs[0] is not None else None]
    if node.op_type in _CLASSIFIERS:
        texts = node.attributes.get("classlabels_strings")
        return [_STRING if texts is not None and texts.as_strings() else _INT64, _FLOAT]
    if node.op_type == "LabelEncoder":
        if "values_tensor" in node.attributes:
            return [node.attributes["values_tensor"].as_tensor().dtype]
        return [next((dtype for name, dtype in _VALUES.items() if name in node.attributes), None)]
    return []


def class_count(node: ir.Node) -> int:
    """The number of classes of a classifier."""
    names = ("classlabels_ints", "classlabels_int64s", "classlabels_strings")
    return max((len(node.attributes[name].value) for name in names if name in node.attributes), default=0)


def _fix_features(op: NodeView, count: int) -> None:
    """A number of features that has a name is that of the attributes."""
    data = op.shape(0)
    if data and not isinstance(data[-1], int):
        op.equate(data[-1], count)


def _length(op: NodeView, *names: str) -> int:
    """The number of elements of an attribute, of which others may not be given."""
    lengths: list[list[float]] = [op.attr(name, []) for name in names]
    return max(map(len, lengths))


# Attributes that have one element, or one for each feature.
_EACH = {"Scaler": ("offset", "scale"), "Imputer": ("imputed_value_floats", "imputed_value_int64s")}


@rule("Scaler", "Normalizer", "Binarizer", "Imputer", "LabelEncoder")
def _like_first(op: NodeView) -> list[Dims]:
    count = _length(op, *_EACH[op.node.op_type]) if op.node.op_type in _EACH else 0
    if count > 1:
        _fix_features(op, count)
    return [op.shape(0)]


@rule("OneHotEncoder")
def _one_hot_encoder(op: NodeView) -> list[Dims]:
    return [(*op.shape(0), len(op.attr("cats_int64s", []) or op.attr("cats_strings", [])))]


@rule("ArrayFeatureExtractor")
def _array_feature_extractor(op: NodeView) -> list[Dims]:
    data, chosen = op.shape(0), product(op.shape(1))
    return [(*(data[:-1] if len(data) > 1 else (1,)), chosen)]


@rule("FeatureVectorizer")
def _feature_vectorizer(op: NodeView) -> list[Dims]:
    return [(op.shape(0)[0], sum(op.attr("inputdimensions", [0])))]


def _rows(op: NodeView) -> PartialDims:
    data = op.shape(0)
    if len(data) not in (1, 2):
        raise NotKnownError
    return data[:-1] or (1,)


@rule("LinearRegressor")
def _linear_regressor(op: NodeView) -> list[PartialDims]:
    _fix_features(op, _length(op, "coefficients") // max(op.attr("targets", 1), 1))
    return [(*_rows(op), op.attr("targets", 1))]


@rule("LinearClassifier")
def _linear_classifier(op: NodeView) -> list[PartialDims]:
    weights: list[float] = op.attr("coefficients", [])
    if rows := _length(op, "intercepts"):
        _fix_features(op, len(weights) // rows)
    scores = floordiv(len(weights), op.shape(0)[-1]) if op.shape(0)[-1] != 0 else 0
    classes = class_count(op.node)
    return [_rows(op), (*_rows(op), classes if scores == 1 and classes == 2 else scores)]


@rule("TreeEnsembleClassifier")
def _tree_classifier(op: NodeView) -> list[PartialDims]:
    return [_rows(op), (*_rows(op), class_count(op.node))]


@rule("TreeEnsembleRegressor", "TreeEnsemble")
def _tree_regressor(op: NodeView) -> list[PartialDims]:
    return [(*_rows(op), op.attr("n_targets", 1))]


@rule("SVMRegressor")
def _svm_regressor(op: NodeView) -> list[PartialDims]:
    vectors = op.attr("n_supports", 0)
    _fix_features(
        op, _length(op, "support_vectors") // vectors if vectors > 0 else _length(op, "coefficients")
    )
    return [(*_rows(op), 1)]


@rule("SVMClassifier")
def _svm_classifier(op: NodeView) -> list[PartialDims]:
    per_class: list[int] = op.attr("vectors_per_class", [])
    if sum(per_class):
        _fix_features(op, _length(op, "support_vectors") // sum(per_class))
    classes = class_count(op.node)
    pairs = classes * (classes - 1) // 2
    by_class = classes == 2 or bool(op.attr("prob_a", []))
    return [_rows(op), (*_rows(op), classes if by_class else pairs)]
