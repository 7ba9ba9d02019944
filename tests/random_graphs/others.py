"""Rarer operators: of elements, of matrices, of classical machine learning, losses and optimizers."""

from __future__ import annotations

import numpy as np

from .building import Builder, Skip
from .registry import axis_of, maker, since

ML = "ai.onnx.ml"


@maker()
def rare_elements(b: Builder) -> object:
    match since(
        b, {"Acosh": 11, "Size": 11, "EyeLike": 11, "Det": 11, "CumProd": 26, "Unique": 11, "BitCast": 26}
    ):
        case "Acosh":
            one = b.const(1.01, b.dtype)
            return b.emit("Acosh", b.emit("Add", [b.emit("Abs", [b.floats()])[0], one]))
        case "Size":
            return b.emit("Size", [b.pick()])
        case "EyeLike":
            return b.emit("EyeLike", [b.pick(low=2, high=2)], k=int(b.rng.integers(-2, 3)))
        case "Det":
            size = int(b.one((1, 2, 3, 5)))
            return b.emit("Det", [b.new((*b.shape(0, 2), size, size))])
        case "CumProd":
            x = b.floats(1)
            more = {"exclusive": int(b.chance(0.3)), "reverse": int(b.chance(0.3))}
            return b.emit("CumProd", [x, b.const(axis_of(b, b.values[x]), np.int64)], **more)
        case "BitCast":
            x = b.pick(lambda array: array.dtype.name in ("float32", "int32", "uint32"))
            return b.emit("BitCast", [x], to=int(b.one((6, 12))))
        case _:
            x = b.pick(lambda array: array.dtype.kind in "fi" and array.size > 0, 1)
            axis = axis_of(b, b.values[x]) if b.chance(0.5) else None
            return b.emit("Unique", [x], 4, axis=axis, sorted=int(b.chance(0.7)))


@maker()
def rare_moves(b: Builder) -> object:
    x = b.pick(lambda array: array.size > 0, 2)
    array = b.values[x]
    match since(
        b, {"ReverseSequence": 11, "ScatterND": 11, "GatherND": 12, "Split": 18, "Shape": 15, "Pad": 19}
    ):
        case "ReverseSequence":
            batch = int(b.one((0, 1)))
            lengths = b.const(b.rng.integers(1, array.shape[1 - batch] + 1, array.shape[batch]), np.int64)
            return b.emit("ReverseSequence", [x, lengths], batch_axis=batch, time_axis=1 - batch)
        case "ScatterND":
            rows = b.rng.permutation(array.shape[0])[: int(b.rng.integers(1, array.shape[0] + 1))]
            at = b.const(rows.reshape(-1, 1), np.int64)
            reduction = b.one((None, "add")) if b.opset >= 16 and array.dtype.kind in "fi" else None
            return b.emit(
                "ScatterND", [x, at, b.new((len(rows), *array.shape[1:]), array.dtype)], reduction=reduction
            )
        case "GatherND":
            at = b.rng.integers(-array.shape[1], array.shape[1], (array.shape[0], 3, 1))
            return b.emit("GatherND", [x, b.const(at, np.int64)], batch_dims=1)
        case "Split":
            axis = axis_of(b, array)
            if array.shape[axis] < 2:
                raise Skip("short")
            return b.emit("Split", [x], 2, axis=axis, num_outputs=2)
        case "Shape":
            return b.emit("Shape", [x], start=int(b.rng.integers(-3, 3)), end=int(b.rng.integers(-1, 4)))
        case _:
            axes = [int(axis) for axis in b.rng.permutation(array.ndim)[:2]]
            pads = [int(b.rng.integers(0, min(array.shape[axis], 3))) for axis in axes * 2]
            return b.emit(
                "Pad", [x, b.ints(*pads), "", b.ints(*axes)], mode=b.one(("wrap", "edge", "constant"))
            )


@maker()
def tensor_scatter(b: Builder) -> object:
    if b.opset < 24:
        raise Skip("opset")
    batch, length, size = int(b.one((1, 2))), int(b.one((4, 6))), int(b.one((1, 3)))
    past, new = b.new((batch, 2, length, size)), b.new((batch, 2, 2, size))
    circular = b.chance(0.4)
    at = b.const(b.rng.integers(0, length if circular else length - 1, batch), np.int64)
    return b.emit("TensorScatter", [past, new, at], mode="circular" if circular else "linear", axis=-2)


@maker()
def loss(b: Builder) -> object:
    op = since(b, {"NegativeLogLikelihoodLoss": 12, "SoftmaxCrossEntropyLoss": 12})
    x = b.pick(lambda array: array.dtype == b.dtype and array.size > 0, 2)
    shape = b.values[x].shape
    target = b.const(b.rng.integers(0, shape[1], (shape[0], *shape[2:])), np.int64)
    inputs = [x, target]
    if b.chance(0.5):
        inputs.append(b.const(b.rng.uniform(0.5, 2, shape[1]), b.dtype))
    return b.emit(op, inputs, reduction=b.one(("none", "sum", "mean")))


def _rows(b: Builder) -> str:
    return b.pick(lambda array: array.dtype == np.float32 and array.size > 0, 2, 2)


@maker(2)
def classical(b: Builder) -> object:
    """What scikit-learn's models become."""
    x = _rows(b)
    rows, width = b.values[x].shape
    numbers = [float(n) for n in np.round(b.rng.uniform(-2, 2, width), 2)]
    match b.one(
        (
            "Scaler",
            "Normalizer",
            "Binarizer",
            "Imputer",
            "LinearRegressor",
            "Features",
            "Array",
            "Label",
            "OneHot",
        )
    ):
        case "Scaler":
            scale = [float(n) for n in np.round(b.rng.uniform(0.2, 2, width), 2)]
            return b.emit("Scaler", [x], domain=ML, offset=numbers, scale=scale)
        case "Normalizer":  # onnxruntime's MAX takes the sign with it, which the reference does not
            return b.emit("Normalizer", [x], domain=ML, norm=b.one(("L1", "L2")))
        case "Binarizer":
            return b.emit("Binarizer", [x], domain=ML, threshold=0.25)
        case "Imputer":
            return b.emit("Imputer", [x], domain=ML, imputed_value_floats=numbers, replaced_value_float=0.0)
        case "LinearRegressor":
            targets = int(b.one((1, 3)))
            weights = [float(n) for n in np.round(b.rng.standard_normal(width * targets), 2)]
            more = {"intercepts": [0.5] * targets} if b.chance(0.5) else {}
            return b.emit("LinearRegressor", [x], domain=ML, coefficients=weights, targets=targets, **more)
        case "Features":
            y = b.new((rows, 3), np.dtype(np.float32))
            return b.emit("FeatureVectorizer", [x, y], domain=ML, inputdimensions=[width, 3])
        case "Array":
            at = b.const(b.rng.integers(0, width, 3).reshape(1, 3), np.int64)
            return b.emit("ArrayFeatureExtractor", [x, at], domain=ML)
        case "Label":
            y = b.pick(lambda array: array.dtype == np.int64)
            return b.emit(
                "LabelEncoder",
                [y],
                domain=ML,
                keys_int64s=[0, 1, 2, 3],
                values_int64s=[7, -1, 4, 2],
                default_int64=9,
            )
        case _:
            y = b.pick(lambda array: array.dtype == np.int64, 1, 2)
            return b.emit("OneHotEncoder", [y], domain=ML, cats_int64s=[0, 1, 3], zeros=1)


@maker(2)
def forest(b: Builder) -> object:
    """A few trees of depth two."""
    x = _rows(b)
    width, trees = b.values[x].shape[1], int(b.one((1, 3)))
    kind = b.one(("target", "class"))
    # Of two classes, of which a leaf has one, onnxruntime's labels are not those of the largest scores.
    targets = 3 if kind == "class" else int(b.one((1, 2)))
    modes = [str(b.one(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE")))] * 3 + ["LEAF"] * 4
    weights = [float(n) for n in np.round(b.rng.standard_normal(4 * trees), 2)]
    more = {
        "nodes_treeids": [t for t in range(trees) for _ in range(7)],
        "nodes_nodeids": list(range(7)) * trees,
        "nodes_featureids": [int(n) for n in b.rng.integers(0, width, 7 * trees)],
        "nodes_values": [float(n) for n in np.round(b.rng.standard_normal(7 * trees), 2)],
        "nodes_modes": modes * trees,
        "nodes_truenodeids": [1, 3, 5, 0, 0, 0, 0] * trees,
        "nodes_falsenodeids": [2, 4, 6, 0, 0, 0, 0] * trees,
    }
    more |= {
        f"{kind}_treeids": [t for t in range(trees) for _ in range(4)],
        f"{kind}_nodeids": [3, 4, 5, 6] * trees,
        f"{kind}_ids": [int(n) for n in b.rng.integers(0, targets, 4 * trees)],
        f"{kind}_weights": weights if kind == "target" else [abs(n) + 0.125 for n in weights],
    }
    if kind == "target":
        how = b.one(("SUM", "AVERAGE", "MIN", "MAX"))
        return b.emit(
            "TreeEnsembleRegressor", [x], domain=ML, n_targets=targets, aggregate_function=how, **more
        )
    labels = list(range(targets))
    transform = b.one(("NONE", "SOFTMAX"))
    return b.emit(
        "TreeEnsembleClassifier",
        [x],
        2,
        domain=ML,
        classlabels_int64s=labels,
        post_transform=transform,
        **more,
    )


@maker()
def vectors(b: Builder) -> object:
    """Support vectors, and a linear classifier."""
    x = _rows(b)
    width = b.values[x].shape[1]
    if b.chance(0.5):
        classes = int(b.one((2, 3)))
        weights = [float(n) for n in np.round(b.rng.standard_normal(width * classes), 2)]
        return b.emit(
            "LinearClassifier", [x], 2, domain=ML, classlabels_ints=list(range(classes)),
            coefficients=weights, intercepts=[0.1] * classes, multi_class=0,
            post_transform=b.one(("NONE", "SOFTMAX", "LOGISTIC")),
        )  # fmt: skip
    count = int(b.one((1, 3)))
    vectors = [float(n) for n in np.round(b.rng.standard_normal(width * count), 2)]
    weights = [float(n) for n in np.round(b.rng.standard_normal(count), 2)]
    return b.emit(
        "SVMRegressor", [x], domain=ML, coefficients=weights, support_vectors=vectors, n_supports=count,
        rho=[0.3], kernel_type=b.one(("LINEAR", "POLY", "RBF", "SIGMOID")), kernel_params=[0.5, 0.2, 2.0],
    )  # fmt: skip


@maker()
def optimizer(b: Builder) -> object:
    op = b.one(("Adagrad", "Momentum", "Adam"))
    if b.dtype == np.float16:
        raise Skip("no such type")
    x = b.floats()
    shape = b.values[x].shape
    head = [b.const(0.1, b.dtype), b.const(int(b.one((0, 3))), np.int64)]
    states = [b.const(np.abs(b.rng.standard_normal(shape)), b.dtype) for _ in range(1 + (op == "Adam"))]
    more: dict[str, object] = {"norm_coefficient": 0.01}
    if op == "Momentum":
        more |= {"alpha": 0.9, "beta": 0.8, "mode": b.one(("standard", "nesterov"))}
    inputs = [*head, x, b.new(shape), *states]
    return b.emit(op, inputs, 1 + len(states), domain="ai.onnx.preview.training", **more)
