"""Operators of ``ai.onnx.ml`` against onnxruntime, and models of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import farcall as fc
from farcall.backends.c import CBackend
from farcall.errors import ModelError, UnsupportedOperatorError
from farcall.graph import load_model

from .harness import compile_regions, whole_region

ort = pytest.importorskip("onnxruntime")


def model(
    op: str,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[int] = (TensorProto.FLOAT,),
    version: int = 3,
    symbolic: bool = True,
    **attributes: object,
) -> onnx.ModelProto:
    """A model of one node, whose inputs have a symbolic number of rows."""
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, [f"y{i}" for i in range(len(outputs))], domain="ai.onnx.ml")
    for name, value in attributes.items():
        if value is not None:
            node.attribute.append(helper.make_attribute(name, value))
    given = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), ["n", *x.shape[1:]] if symbolic else x.shape
        )
        for name, x in zip(names, inputs, strict=True)
    ]
    results = [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(outputs)]
    graph = helper.make_graph([node], "g", given, results)
    opsets = [helper.make_opsetid("ai.onnx.ml", version), helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(cases: Sequence[tuple[onnx.ModelProto, Sequence[np.ndarray]]]) -> None:
    """Compare each model with onnxruntime, also for no row."""
    regions = [whole_region(item, name=f"c_{i}") for i, (item, _) in enumerate(cases)]
    for (item, inputs), region in zip(cases, compile_regions(regions, flags=["-O0"]), strict=True):
        what = helper.printable_node(item.graph.node[0])[:600]
        expected = ort.InferenceSession(item.SerializeToString()).run(
            None, {f"x{i}": x for i, x in enumerate(inputs)}
        )
        for got, wanted in zip(region(*inputs), expected, strict=True):
            assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), what
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5, err_msg=what)


def numbers(*shape: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(dtype)


KINDS = (np.float32, np.float64, np.int64, np.int32)


def test_features() -> None:
    cases = []
    for kind in KINDS:
        x = numbers(5, 3, dtype=kind)
        same = helper.np_dtype_to_tensor_dtype(x.dtype)
        cases += [
            (model("Scaler", [x], offset=[1.0, 2.0, -3.0], scale=[0.5, 2.0, 3.0]), [x]),
            (model("Scaler", [x], offset=[1.0], scale=[0.5]), [x]),
            *((model("Normalizer", [x], norm=norm), [x]) for norm in ("L1", "L2")),
            (
                model("ArrayFeatureExtractor", [x, np.int64([2, 0])], [same], symbolic=False),
                [x, np.int64([2, 0])],
            ),
        ]
        if kind != np.int32:  # onnxruntime has none for it
            cases.append((model("OneHotEncoder", [x], cats_int64s=[0, 2, -3]), [x]))
    x = np.abs(numbers(4, 3)) + 1
    cases.append((model("Normalizer", [x], norm="MAX"), [x]))
    cases.append((model("Binarizer", [x], threshold=1.5), [x]))
    many = [numbers(4, 3), numbers(4, 2, seed=1)]
    cases.append((model("FeatureVectorizer", many, inputdimensions=[3, 2]), many))
    holes = np.where(numbers(6, 3) > 1, np.nan, numbers(6, 3)).astype(np.float32)
    for values in ([9.0], [7.0, 8.0, 9.0]):
        cases.append(
            (model("Imputer", [holes], imputed_value_floats=values, replaced_value_float=np.nan), [holes])
        )
    whole = np.int64([[1, 0, 2], [0, 0, 5]])
    cases.append(
        (
            model("Imputer", [whole], [TensorProto.INT64], imputed_value_int64s=[4], replaced_value_int64=0),
            [whole],
        )
    )
    check(cases)


def test_label_encoder() -> None:
    x, z = np.int64([[3, 1, 7], [0, -5, 3]]), np.float32([0.5, np.nan, 2, -1, 0])
    tensor, whole = numpy_helper.from_array, [TensorProto.INT64]
    floats = {"keys_floats": [2.0, np.nan, 0.5], "values_int64s": [5, 6, 7]}
    wide = {
        "keys_tensor": tensor(np.float64([0.5, np.nan])),
        "values_tensor": tensor(np.float64([1, 2])),
        "default_tensor": tensor(np.float64([3])),
    }
    to_floats = {"keys_int64s": [7, 3, -5], "values_floats": [1.0, 2.0, 3.0], "default_float": 9.0}
    one = {"keys_int64s": [1], "values_int64s": [2], "default_int64": 4}
    check(
        [
            (model("LabelEncoder", [x], version=2, **to_floats), [x]),
            (model("LabelEncoder", [z], whole, 2, **floats), [z]),
            (model("LabelEncoder", [z], whole, 4, **floats), [z]),
            (model("LabelEncoder", [x], whole, 2, **one), [x]),
            (
                model("LabelEncoder", [z.astype(np.float64)], [TensorProto.DOUBLE], 4, **wide),
                [z.astype(np.float64)],
            ),
        ]
    )


def test_linear_models() -> None:
    cases = []
    weights, biases = numbers(12).tolist(), numbers(3, seed=1).tolist()
    labels = [TensorProto.INT64, TensorProto.FLOAT]
    for kind, change in product(KINDS[:3], ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")):
        x = numbers(6, 4, dtype=kind, seed=2)
        many = {"coefficients": weights, "intercepts": biases, "post_transform": change}
        cases.append((model("LinearClassifier", [x], labels, classlabels_ints=[5, -1, 7], **many), [x]))
    x = numbers(6, 4)
    cases.append((model("LinearRegressor", [x], coefficients=weights, intercepts=biases, targets=3), [x]))
    cases.append((model("LinearRegressor", [x], coefficients=weights[:4]), [x]))
    check(cases)


MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def grow(
    seed: int, trees: int = 5, modes: Sequence[str] = MODES[:1], votes: str = "target", targets: int = 2
) -> dict:
    """Attributes of random trees of 4 features, whose splits are whole numbers. Some leaves lack targets."""
    rng = np.random.default_rng(seed)
    nodes: dict[str, list] = {
        name: [] for name in ("tree", "id", "feature", "value", "mode", "yes", "no", "missing")
    }
    leaves: dict[str, list] = {name: [] for name in ("tree", "id", "target", "weight")}

    def add(tree: int, number: int, depth: int) -> int:
        """Add the nodes below number ``number``; returns the next free number."""
        is_leaf = depth == 0 or rng.random() < 0.2
        at = len(nodes["id"])
        row = (
            tree,
            number,
            rng.integers(4),
            rng.integers(-3, 4),
            "LEAF" if is_leaf else rng.choice(modes),
            0,
            0,
        )
        for name, value in zip(nodes, (*row, rng.integers(2)), strict=True):
            nodes[name].append(value)
        if is_leaf:
            for target in rng.permutation(targets)[: rng.integers(1, targets + 1)]:
                for name, value in zip(leaves, (tree, number, target, rng.standard_normal()), strict=True):
                    leaves[name].append(value)
            return number + 1
        nodes["yes"][at] = number + 1
        nodes["no"][at] = middle = add(tree, number + 1, depth - 1)
        return add(tree, middle, depth - 1)

    for tree in range(trees):
        add(tree, 0, 3)
    return {
        "nodes_treeids": list(map(int, nodes["tree"])),
        "nodes_nodeids": list(map(int, nodes["id"])),
        "nodes_featureids": list(map(int, nodes["feature"])),
        "nodes_values": list(map(float, nodes["value"])),
        "nodes_modes": list(map(str, nodes["mode"])),
        "nodes_truenodeids": list(map(int, nodes["yes"])),
        "nodes_falsenodeids": list(map(int, nodes["no"])),
        "nodes_missing_value_tracks_true": list(map(int, nodes["missing"])),
        f"{votes}_treeids": list(map(int, leaves["tree"])),
        f"{votes}_nodeids": list(map(int, leaves["id"])),
        f"{votes}_ids": list(map(int, leaves["target"])),
        f"{votes}_weights": list(map(float, leaves["weight"])),
    }


def rows(kind: type, seed: int = 3) -> np.ndarray:
    x = np.round(numbers(40, 4, seed=seed)).astype(kind)
    if x.dtype.kind == "f":
        x[::5, 1] = np.nan
    return x


def test_tree_regressors() -> None:
    cases = []
    for seed, (kind, aggregate) in enumerate(product(KINDS[:2], ("SUM", "AVERAGE", "MIN", "MAX"))):
        trees = grow(seed, modes=MODES if seed % 2 else MODES[:1], targets=2 + seed % 2)
        base = [0.5, -1.0, 2.0][: 2 + seed % 2] if seed % 3 else None
        x = rows(kind)
        extra = {"n_targets": 2 + seed % 2, "aggregate_function": aggregate, "base_values": base}
        cases.append((model("TreeEnsembleRegressor", [x], **trees, **extra), [x]))
    for change in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        x = rows(np.float32)
        trees = grow(7, modes=MODES, targets=3)
        cases.append((model("TreeEnsembleRegressor", [x], **trees, n_targets=3, post_transform=change), [x]))
    check(cases)


def test_tree_classifiers() -> None:
    labels, cases = [TensorProto.INT64, TensorProto.FLOAT], []
    for seed, (kind, change) in enumerate(product(KINDS[:3], ("NONE", "LOGISTIC", "SOFTMAX"))):
        x = rows(kind)
        trees = grow(seed, 9, MODES, "class", 3)
        named = {"classlabels_int64s": [4, -2, 9], "post_transform": change, "base_values": [0.1, 0.2, -0.3]}
        cases.append((model("TreeEnsembleClassifier", [x], labels, **trees, **named), [x]))
        if change == "SOFTMAX":  # onnxruntime leaves it out for two classes
            continue
        two = grow(seed, 9, MODES, "class", 1)  # votes for one of two classes
        named = {"classlabels_int64s": [4, 8], "post_transform": change}
        cases.append((model("TreeEnsembleClassifier", [x], labels, **two, **named), [x]))
        cases.append((model("TreeEnsembleClassifier", [x], labels, **two, **named, base_values=[0.3]), [x]))
    shares = grow(3, 4, MODES, "class", 1)
    shares["class_weights"] = [abs(w) / 9 for w in shares["class_weights"]]
    cases.append((model("TreeEnsembleClassifier", [x], labels, **shares, classlabels_int64s=[0, 1]), [x]))
    check(cases)


def test_tree_ensemble() -> None:
    """The operator of version 5, with sets."""
    tensor, cases = numpy_helper.from_array, []
    for kind, aggregate in product((np.float32, np.float64), range(4)):
        x = rows(kind)
        attributes = {
            "tree_roots": [0, 3],
            "n_targets": 3,
            "aggregate_function": aggregate,
            "nodes_featureids": [0, 1, 2, 3],
            "nodes_modes": tensor(np.uint8([0, 6, 5, 6])),
            "nodes_splits": tensor(np.array([0.5, 0, 2, 0], kind)),
            "membership_values": tensor(np.array([1, -2, np.nan, 0, np.nan], kind)),
            "nodes_truenodeids": [1, 0, 2, 4],
            "nodes_trueleafs": [0, 1, 1, 1],
            "nodes_falsenodeids": [2, 1, 3, 5],
            "nodes_falseleafs": [0, 1, 1, 1],
            "leaf_targetids": [0, 1, 2, 0, 1, 1],
            "leaf_weights": tensor(np.array([1, 2, -3, 4, 5.5, -6], kind)),
        }
        outputs = [helper.np_dtype_to_tensor_dtype(x.dtype)]
        cases.append((model("TreeEnsemble", [x], outputs, 5, **attributes), [x]))
    check(cases)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_truenodeids": 0}, "is below itself"),
        ({"nodes_falsenodeids": 99}, "tree 0 has no node 99"),
        ({"target_ids": 2}, "target or class 2 is outside of 0 to 1"),
        ({"target_ids": -1}, "target or class -1"),
        ({"nodes_featureids": 4}, "trees of 5 features, for 4 of the input"),
        ({"nodes_featureids": -2}, "feature -2"),
        ({"target_nodeids": 0}, "a node that is no leaf has a weight"),
        ({"nodes_modes": "BRANCH_XOR"}, "nodes_modes has BRANCH_XOR"),
        ({"nodes_values": None}, "elements, which must be equal"),
        ({"base_values": [1.0]}, "1 base values for 2 targets"),
        ({"aggregate_function": "MEDIAN"}, "aggregate_function=MEDIAN"),
        ({"post_transform": "CUBE"}, "post_transform=CUBE"),
        ({"n_targets": 0}, "0 targets"),
    ],
)
def test_broken_trees_are_refused(change: dict[str, object], message: str) -> None:
    trees = grow(1) | {"n_targets": 2}
    for name, value in change.items():
        if value is None:
            trees[name] = trees[name][:-1]
        elif isinstance(trees.get(name), list):
            trees[name] = [value, *trees[name][1:]]
        else:
            trees[name] = value
    (node,) = load_model(model("TreeEnsembleRegressor", [rows(np.float32)], **trees)).graph
    assert message in str(CBackend().check(node))


VECTORS = {
    "classlabels_ints": [0, 1],
    "vectors_per_class": [1, 2],
    "support_vectors": numbers(12).tolist(),
    "coefficients": [1.0, -2.0, 3.0],
    "rho": [0.5],
    "kernel_type": "RBF",
    "kernel_params": [0.5, 0.0, 3.0],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coefficients": [1.0]}, "12 numbers in vectors and 1 coefficients, for 3 vectors of 4 features"),
        ({"support_vectors": [1.0]}, "1 numbers in vectors"),
        ({"vectors_per_class": [1, -2]}, "vectors_per_class=[1, -2] for 2 classes"),
        ({"rho": [1.0, 2.0]}, "for 1 pairs of classes"),
        ({"prob_a": [1.0]}, "'prob_a': 1, 'prob_b': 0"),
        ({"classlabels_ints": [1]}, "fewer than two labels"),
        ({"kernel_type": "CUBIC"}, "kernel_type=CUBIC"),
        ({"post_transform": "SOFTMAX"}, "post_transform=SOFTMAX; expected NONE"),
    ],
)
def test_broken_support_vectors_are_refused(change: dict[str, object], message: str) -> None:
    kinds = [TensorProto.INT64, TensorProto.FLOAT]
    (node,) = load_model(model("SVMClassifier", [numbers(5, 4)], kinds, 1, **VECTORS | change)).graph
    assert message in str(CBackend().check(node))


def test_strings_and_maps_are_refused_with_the_cure() -> None:
    x = np.array(["a", "b"], object)
    texts = model("LabelEncoder", [x], [TensorProto.INT64], 2, keys_strings=["a"], values_int64s=[1])
    with pytest.raises(
        UnsupportedOperatorError,
        match="no tensor of numbers: only onnxruntime and reference take such values",
    ):
        fc.partition(texts, backends=["c"])


def test_lists_of_maps_become_the_scores() -> None:
    score, x = model("ZipMap", [numbers(3, 2)], classlabels_int64s=[0, 1]), numbers(3, 2)
    main = fc.partition(score, backends=["c"]).build().load()["main"]
    np.testing.assert_array_equal(np.asarray(main(x)), x)
    score.graph.node.add(op_type="SequenceLength", input=[score.graph.node[0].output[0]], output=["n"])
    with pytest.raises(ModelError, match=r"ZipMap\) makes a list of maps.*options=\{'zipmap': False\}"):
        fc.partition(score, backends=["c"])


def test_features_that_a_call_lacks() -> None:
    trees = grow(1) | {"n_targets": 2}
    item = model("TreeEnsembleRegressor", [rows(np.float32)], **trees)
    item.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "features"
    (region,) = compile_regions([whole_region(item)])
    assert region(rows(np.float32))[0].shape == (40, 2)
    with pytest.raises(RuntimeError):
        region(rows(np.float32)[:, :1])


@pytest.fixture(scope="module")
def flowers() -> tuple[np.ndarray, np.ndarray]:
    pytest.importorskip("skl2onnx")
    from sklearn.datasets import load_iris

    x, y = load_iris(return_X_y=True)
    return x.astype(np.float32), y


def pipelines() -> dict[str, tuple[object, str]]:
    """Name -> a model, and what it learns: the class, whether it is not class 0, or numbers."""
    from sklearn import ensemble, linear_model, preprocessing, svm
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline

    return {
        "forest": (ensemble.RandomForestClassifier(20, max_depth=5, random_state=0), "class"),
        "binary forest": (ensemble.RandomForestClassifier(20, max_depth=5, random_state=0), "binary"),
        "boosting": (ensemble.GradientBoostingClassifier(n_estimators=8, random_state=0), "class"),
        "binary boosting": (ensemble.GradientBoostingClassifier(n_estimators=8, random_state=0), "binary"),
        "forest of numbers": (ensemble.RandomForestRegressor(10, random_state=0), "numbers"),
        "boosting of a number": (
            ensemble.GradientBoostingRegressor(n_estimators=8, random_state=0),
            "number",
        ),
        "logistic": (
            make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
            "class",
        ),
        "binary logistic": (
            make_pipeline(preprocessing.MinMaxScaler(), linear_model.LogisticRegression()),
            "binary",
        ),
        "ridge": (
            make_pipeline(SimpleImputer(), preprocessing.Normalizer(), linear_model.Ridge()),
            "numbers",
        ),
        "vectors": (svm.SVC(), "class"),
        "vectors with probabilities": (svm.SVC(probability=True, random_state=0), "class"),
        "two classes of vectors": (svm.SVC(kernel="sigmoid", coef0=0.1), "binary"),
        "vectors for a number": (svm.SVR(), "number"),
        "perceptron": (
            make_pipeline(
                preprocessing.Binarizer(threshold=2.0),
                preprocessing.PolynomialFeatures(),
                linear_model.Perceptron(),
            ),
            "class",
        ),
    }


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of skl2onnx, which reads old attributes of SVC
def test_pipelines_of_scikit_learn(flowers: tuple[np.ndarray, np.ndarray]) -> None:
    from skl2onnx import to_onnx

    x, y = flowers
    learned = {"class": y, "binary": (y > 0).astype(int), "numbers": x[:, :2], "number": x[:, 0]}
    named = {}
    for name, (item, kind) in pipelines().items():
        item.fit(x, learned[kind])  # type: ignore[attr-defined]
        options = {"zipmap": False} if kind in ("class", "binary") else None
        named[name] = to_onnx(item, x[:1], options=options)
    regions = [whole_region(item, name=f"c_{i}") for i, item in enumerate(named.values())]
    for (name, item), region in zip(named.items(), compile_regions(regions), strict=True):
        expected = ort.InferenceSession(item.SerializeToString()).run(None, {"X": x})
        for got, wanted in zip(region(x), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, err_msg=name)


def test_wrong_dims_that_skl2onnx_declares_are_not_believed(flowers: tuple[np.ndarray, np.ndarray]) -> None:
    """It declares two columns of scores, and its nodes make one."""
    from skl2onnx import to_onnx
    from sklearn.linear_model import RidgeClassifier

    x, y = flowers
    learned = RidgeClassifier().fit(x, y > 0)
    model = to_onnx(learned, x[:1], options={"zipmap": False})
    labels, scores = map(np.asarray, fc.partition(model, backends=["c"]).build().load()["main"](x))
    np.testing.assert_array_equal(labels, learned.predict(x))
    np.testing.assert_allclose(scores[:, 0], learned.decision_function(x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_classifiers_with_maps_give_their_probabilities(flowers: tuple[np.ndarray, np.ndarray]) -> None:
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    x, y = flowers
    learned = LogisticRegression(max_iter=200).fit(x, y)
    main = fc.partition(to_onnx(learned, x[:1]), backends=["c"]).build().load()["main"]
    labels, scores = map(np.asarray, main(x))
    np.testing.assert_array_equal(labels, learned.predict(x))
    np.testing.assert_allclose(scores, learned.predict_proba(x), rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_pipelines_with_functions_of_another_opset_and_with_texts() -> None:
    from skl2onnx import to_onnx
    from sklearn.impute import KNNImputer
    from sklearn.preprocessing import OneHotEncoder

    holes = numbers(9, 2)
    holes[::3, 1] = np.nan
    texts = np.array([["a"], ["b"], ["a"]], object)
    imputer, encoder = KNNImputer(n_neighbors=2), OneHotEncoder(sparse_output=False)
    for learned, x, backend in (
        (imputer, holes, "onnxruntime"), (imputer, holes, "c"), (encoder, texts, "onnxruntime")
    ):  # fmt: skip
        learned.fit(x)
        plan = fc.partition(to_onnx(learned, x[:1]), backends=[backend])
        found = np.asarray(plan.build().load()["main"](x if x is holes else x.tolist()))
        np.testing.assert_allclose(found, learned.transform(x), rtol=1e-4, atol=1e-5)
