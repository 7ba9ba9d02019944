"""Definitions of the attention operators of ``com.microsoft``, and of their rotary embeddings.

Queries, keys and values are turned to ``[batch, heads, length, size]``. Masks are added to the products, as
onnxruntime does it on a CPU.
"""

from __future__ import annotations

from farcall.graph._microsoft_calls import Call, UnknownError, defines, ints
from farcall.graph.dims import is_identifier

_AXES_SINCE = 13  # the opset that made axes and lengths inputs of Unsqueeze and Split
_NUMBERS = ints(zero=0, one=1, two=2, three=3, at0=(0,), at1=(1,), at2=(2,), at12=(1, 2), last=(-1,))


def _begin(call: Call) -> str:
    if call.opset < _AXES_SINCE:
        raise UnknownError
    return _NUMBERS


def _heads(result: str, value: str, count: int) -> str:
    """Lines that turn ``[batch, length, count * size]`` to heads."""
    return f"""{ints(**{f"{result}_by": (0, 0, count, -1)})}{result}_wide = Reshape({value}, {result}_by)
        {result} = Transpose <perm: ints = [0, 2, 1, 3]> ({result}_wide)
        """


def _rows(result: str, value: str) -> str:
    """Lines that turn heads to ``[batch, length, heads * size]``."""
    return f"""{result}_turned = Transpose <perm: ints = [0, 2, 1, 3]> ({value})
        {result}_by = Constant <value_ints: ints = [0, 0, -1]> ()
        {result} = Reshape({result}_turned, {result}_by)
        """


def _with_past(name: str, past: str) -> str:
    """A line that puts ``past``, if it is not empty, before the new keys or values."""
    new = f"new_{name}"
    return f"{name} = Concat <axis: int = 2> ({past}, {new})\n" if past else f"{name} = Identity({new})\n"


def _scores(call: Call, like: int) -> str:
    """Lines that make ``scores``: products by the attribute ``scale``, or by the root of a head's size."""
    text = "k_turned = Transpose <perm: ints = [0, 1, 3, 2]> (k)\nproducts = MatMul(q, k_turned)\n"
    if scale := call.attr("scale", 0.0):
        return f"{text}{call.numbers(like, scale=scale)}scores = Mul(products, scale)\n"
    return f"""{text}q_shape = Shape(q)
        q_size = Gather(q_shape, last)
        q_float = Cast <to: int = {call.dtype(like).value}> (q_size)
        root = Sqrt(q_float)
        scores = Div(products, root)
        """


def _masked(call: Call, like: int, mask: int, bias: int) -> str:
    """Lines that make ``masked`` of ``scores``: padding, an additive bias, and what comes later."""
    text = call.numbers(like, nothing=0.0, filter=call.attr("mask_filter_value", -10000.0))
    text += """scores_shape = Shape(scores)
        row_count = Gather(scores_shape, two)
        column_count = Gather(scores_shape, three)
        rows = Range(zero, row_count, one)
        columns = Range(zero, column_count, one)
        """
    value = "scores"
    if call.has(mask):
        text += f"{_kept(call, mask)}hidden = Where(kept, nothing, filter)\npadded = Add({value}, hidden)\n"
        value = "padded"
    if bias and call.has(bias):
        text += f"biased = Add({value}, i{bias})\n"
        value = "biased"
    if call.attr("unidirectional", 0):
        text += f"""earlier = Sub(column_count, row_count)
            places = Add(rows, earlier)
            limits = Unsqueeze(places, at1)
            reached = LessOrEqual(columns, limits)
            later = Where(reached, nothing, filter)
            causal = Add({value}, later)
            """
        value = "causal"
    return f"{text}masked = Identity({value})\n"


def _kept(call: Call, mask: int) -> str:
    """Lines that say which columns count: a mask tells of each, or how many of each row."""
    rank = call.rank(mask)
    whole = f"mask = Cast <to: int = 7> (i{mask})\n"
    if rank == 1:
        if not _is_one_of_each_row(call, mask):
            raise UnknownError  # starts and ends of columns
        return f"""{whole}ends = Unsqueeze(mask, at1)
            within = Less(columns, ends)
            kept = Unsqueeze(within, at12)
            """
    if rank not in (2, 3):
        raise UnknownError
    return f"{whole}given = Greater(mask, zero)\nkept = Unsqueeze(given, {'at12' if rank == 2 else 'at1'})\n"


def _is_one_of_each_row(call: Call, mask: int) -> bool:
    """Whether a mask has a number for each row; one with a name of its own does, or no call fits."""
    batch, given = call.value(0).shape, call.value(mask).shape
    if batch is None or given is None:
        return False
    length = given[0]
    return bool(batch[0] == length or (not isinstance(length, int) and is_identifier(length.value or "")))


_MIXED = "weights = Softmax <axis: int = -1> (masked)\nmixed = MatMul(weights, v)\n" + _rows("o0", "mixed")


# ---- one projection of queries, keys and values ----


def _projected(call: Call, like: int, mask: int, past: int, bias: int) -> str:
    """Lines for ``all``, which holds queries, keys and values side by side."""
    count, given = call.attr("num_heads", 0), call.node.attributes.get("qkv_hidden_sizes")
    if count < 1 or call.attr("do_rotary", 0) or call.attr("past_present_share_buffer", 0):
        raise UnknownError
    total = call.size(1, 1)
    widths = (total // 3,) * 3 if given is None else tuple(given.as_ints())
    text = f"{ints(widths=widths)}queries, keys, values = Split <axis: int = 2> (all, widths)\n"
    text += _heads("q", "queries", count) + _heads("new_k", "keys", count) + _heads("new_v", "values", count)
    if call.has(past):
        text += f"""old_k = Gather <axis: int = 0> (i{past}, zero)
            old_v = Gather <axis: int = 0> (i{past}, one)
            """
    for name in "kv":
        text += _with_past(name, f"old_{name}" if call.has(past) else "")
    text += _scores(call, like) + _masked(call, like, mask, bias) + _MIXED
    if call.uses(1):
        text += "whole_k = Unsqueeze(k, at0)\nwhole_v = Unsqueeze(v, at0)\n"
        text += "o1 = Concat <axis: int = 0> (whole_k, whole_v)\n"
    return text


@defines("Attention")
def _attention(call: Call) -> str:
    call.refuse(6)
    text = f"{_begin(call)}product = MatMul(i0, i1)\n{call.plus('all', 'product', 2)}"
    return text + _projected(call, 0, mask=3, past=4, bias=5)


@defines("QAttention")
def _quantized_attention(call: Call) -> str:
    """The projection is a product of integers."""
    return f"""{_begin(call)}sums = MatMulInteger(i0, i1, i6, i7)
        wide = Cast <to: int = {call.dtype(2).value}> (sums)
        scale = Mul(i3, i4)
        product = Mul(wide, scale)
        all = Add(product, i2)
        {_projected(call, 2, mask=5, past=8, bias=0)}"""


# ---- queries, keys and values on their own ----


@defines("MultiHeadAttention")
def _multi_head_attention(call: Call) -> str:
    call.refuse(8, 9)
    count = call.attr("num_heads", 0)
    if count < 1 or call.uses(3):
        raise UnknownError
    text = _begin(call) + _separated(call, count)
    for name, past in (("k", 6), ("v", 7)):
        text += _with_past(name, f"i{past}" if call.has(past) else "")
    text += _scores(call, 0) + _masked(call, 0, mask=4, bias=5) + _MIXED
    return text + "".join(
        f"o{index} = Identity({name})\n" for index, name in ((1, "k"), (2, "v")) if call.uses(index)
    )


def _separated(call: Call, count: int) -> str:
    """Lines that make ``q``, ``new_k`` and ``new_v``, which may be packed, with their biases."""
    parts = {"q": "i0", "new_k": "i1", "new_v": "i2"}
    if call.rank(0) == 5:
        return _unpacked("i0", ("q", "new_k", "new_v"), call)
    if call.rank(1) == 5:
        text = _unpacked("i1", ("new_k", "new_v"), call)
        return text + _heads("q", "i0", count)
    if call.rank(1) == 4:
        call.refuse(3)
        return _heads("q", "i0", count) + "new_k = Identity(i1)\nnew_v = Identity(i2)\n"
    text = ""
    if call.has(3):
        text += ints(widths=tuple(call.size(index, 2) for index in range(3)))
        text += "q_bias, new_k_bias, new_v_bias = Split <axis: int = 0> (i3, widths)\n"
        for name, value in parts.items():
            text += f"{name}_moved = Add({value}, {name}_bias)\n"
        parts = {name: f"{name}_moved" for name in parts}
    return text + "".join(_heads(name, value, count) for name, value in parts.items())


def _unpacked(value: str, names: tuple[str, ...], call: Call) -> str:
    """Lines that take ``[batch, length, heads, parts, size]`` apart."""
    call.refuse(3)
    text = ints(part0=0, part1=1, part2=2)
    for index, name in enumerate(names):
        text += f"{name}_part = Gather <axis: int = 3> ({value}, part{index})\n"
        text += f"{name} = Transpose <perm: ints = [0, 2, 1, 3]> ({name}_part)\n"
    return text


# ---- rotary embeddings ----


def _rotated(result: str, value: str, size: int, width: int, interleaved: bool) -> str:
    """Lines that turn the first ``width`` of ``size`` elements of each head by ``cos`` and ``sin``."""
    half, name = width // 2, result
    text = ints(**{f"{name}_sizes": (width, size - width)})
    first, rest = value, ""
    if width < size:
        first, rest = f"{name}_first", f"{name}_rest"
        text += f"{first}, {rest} = Split <axis: int = -1> ({value}, {name}_sizes)\n"
    if interleaved:
        text += ints(**{f"{name}_pairs": (0, 0, 0, half, 2), f"{name}_flat": (0, 0, 0, width)})
        text += f"""{name}_two = Reshape({first}, {name}_pairs)
            {name}_a = Gather <axis: int = 4> ({name}_two, zero)
            {name}_b = Gather <axis: int = 4> ({name}_two, one)
            """
    else:
        text += ints(**{f"{name}_halves": (half, half)})
        text += f"{name}_a, {name}_b = Split <axis: int = -1> ({first}, {name}_halves)\n"
    text += f"""{name}_ac = Mul({name}_a, cos)
        {name}_bs = Mul({name}_b, sin)
        {name}_bc = Mul({name}_b, cos)
        {name}_as = Mul({name}_a, sin)
        {name}_left = Sub({name}_ac, {name}_bs)
        {name}_right = Add({name}_bc, {name}_as)
        """
    if interleaved:
        text += f"""{name}_left_one = Unsqueeze({name}_left, last)
            {name}_right_one = Unsqueeze({name}_right, last)
            {name}_both = Concat <axis: int = -1> ({name}_left_one, {name}_right_one)
            {name}_turned = Reshape({name}_both, {name}_flat)
            """
    else:
        text += f"{name}_turned = Concat <axis: int = -1> ({name}_left, {name}_right)\n"
    if rest:
        return f"{text}{result} = Concat <axis: int = -1> ({name}_turned, {rest})\n"
    return f"{text}{result} = Identity({name}_turned)\n"


def _angles(places: str, cos: int, sin: int) -> str:
    """Lines that make ``cos`` and ``sin`` of the rows ``places`` of their tables."""
    return f"""cos_rows = Gather(i{cos}, {places})
        sin_rows = Gather(i{sin}, {places})
        cos = Unsqueeze(cos_rows, at1)
        sin = Unsqueeze(sin_rows, at1)
        """


@defines("RotaryEmbedding")
def _rotary_embedding(call: Call) -> str:
    if call.attr("is_packed_batching", 0) or call.attr("scale", 1.0) != 1.0:
        raise UnknownError
    width, whole = 2 * call.size(2, 1), call.rank(0) == 4
    text = _begin(call)
    if whole:
        size = call.size(0, 3)
        text += "x = Identity(i0)\n"
    else:
        count = call.attr("num_heads", 0)
        size = call.size(0, 2) // count if count else width
        text += _heads("x", "i0", call.size(0, 2) // size)
    if call.rank(1) == 1:
        text += """shape = Shape(x)
            length = Gather(shape, two)
            steps = Range(zero, length, one)
            moved = Add(steps, i1)
            places = Unsqueeze(moved, at0)
            """
    else:
        text += "places = Identity(i1)\n"
    text += _angles("places", 2, 3) + _rotated("y", "x", size, width, bool(call.attr("interleaved", 0)))
    return text + ("o0 = Identity(y)\n" if whole else _rows("o0", "y"))


# ---- groups of queries that share keys and values ----


@defines("GroupQueryAttention")
def _group_query_attention(call: Call) -> str:
    call.refuse(*range(11, len(call.node.inputs)))
    count, groups = call.attr("num_heads", 0), call.attr("kv_num_heads", 0)
    if count < 1 or groups < 1 or call.attr("smooth_softmax", 0) or call.uses(3):
        raise UnknownError
    if call.attr("k_quant_type", "NONE") != "NONE" or call.attr("v_quant_type", "NONE") != "NONE":
        raise UnknownError
    parts = count if call.has(1) else count + 2 * groups
    size = call.size(0, 2) // parts
    text = _begin(call) + _grouped(call, count, groups) + _places(call)
    if call.attr("do_rotary", 0):
        width, interleaved = 2 * call.size(7, 1), bool(call.attr("rotary_interleaved", 0))
        text += _angles("i9" if call.has(9) else "places", 7, 8)
        text += _rotated("q", "own_q", size, width, interleaved)
        text += _rotated("new_k", "own_k", size, width, interleaved)
    else:
        text += "q = Identity(own_q)\nnew_k = Identity(own_k)\n"
    text += _caches(groups, size) + _group_scores(call, groups, count // groups, size)
    text += "".join(
        f"o{index} = Identity({name})\n" for index, name in ((1, "k"), (2, "v")) if call.uses(index)
    )
    return text


def _grouped(call: Call, count: int, groups: int) -> str:
    """Lines that make ``own_q``, ``own_k`` and ``new_v``, before they are turned."""
    if call.has(1):
        return _heads("own_q", "i0", count) + _heads("own_k", "i1", groups) + _heads("new_v", "i2", groups)
    return f"""{_heads("packed", "i0", count + 2 * groups)}{ints(shares=(count, groups, groups))}
        own_q, own_k, new_v = Split <axis: int = 1> (packed, shares)
        """


def _places(call: Call) -> str:
    """Lines that say where the new rows of each sequence are: behind those that it has."""
    past = "past_shape = Shape(i3)\npast_length = Gather(past_shape, two)\n" if call.has(3) else ""
    return f"""{past or "past_length = Identity(zero)"}
        q_shape = Shape(own_q)
        row_count = Gather(q_shape, two)
        row_numbers = Range(zero, row_count, one)
        ends = Cast <to: int = 7> (i5)
        ends_flat = Reshape(ends, last)
        had = Sub(ends_flat, row_count)
        had_more = Add(had, one)
        had_some = Max(had_more, zero)
        starts = Unsqueeze(had_some, at1)
        places = Add(starts, row_numbers)
        """


def _caches(groups: int, size: int) -> str:
    """Lines that say where each row of the caches comes from: from the past, or from the new rows."""
    text = """all_length = Cast <to: int = 7> (i6)
        all_scalar = Squeeze(all_length)
        length = Max(past_length, all_scalar)
        columns = Range(zero, length, one)
        since = Sub(columns, starts)
        behind = Add(since, past_length)
        is_old = Less(columns, starts)
        some = Where(is_old, columns, behind)
        room = Add(past_length, row_count)
        end = Sub(room, one)
        source_high = Min(some, end)
        source = Max(source_high, zero)
        source_wide = Unsqueeze(source, at13)
        all_flat = Reshape(length, last)
        index_shape = Concat <axis: int = 0> (at1_one, groups, all_flat, size_one)
        index = Expand(source_wide, index_shape)
        """
    return ints(at13=(1, 3), at1_one=(1,), groups=(groups,), size_one=(size,)) + text


def _group_scores(call: Call, groups: int, share: int, size: int) -> str:
    """Lines for the scores ``[batch, groups, share, rows, columns]``, and the result."""
    text = ""
    for name, past in (("k", 3), ("v", 4)):
        text += f"{name}_all = Concat <axis: int = 2> (i{past}, new_{name})\n" if call.has(past) else ""
        text += "" if call.has(past) else f"{name}_all = Identity(new_{name})\n"
        text += f"{name} = GatherElements <axis: int = 2> ({name}_all, index)\n"
        text += f"{name}_shared = Unsqueeze({name}, at2)\n"
    scale = call.attr("scale", 0.0) or size**-0.5
    lowest = {"FLOAT16": -65504.0}.get(call.dtype(0).name, -3.4e38)
    text += call.numbers(0, scale=scale, lowest=lowest)
    text += ints(by_group=(0, groups, share, -1, size), by_head=(0, groups * share, -1, size))
    text += """q_grouped = Reshape(q, by_group)
        k_turned = Transpose <perm: ints = [0, 1, 2, 4, 3]> (k_shared)
        products = MatMul(q_grouped, k_turned)
        scaled = Mul(products, scale)
        """
    value = "scaled"
    if softcap := call.attr("softcap", 0.0):
        text += f"""{call.numbers(0, cap=softcap)}flattened = Div(scaled, cap)
            bent = Tanh(flattened)
            capped = Mul(bent, cap)
            """
        value = "capped"
    if call.has(10):
        if call.size(10, 1) != 1:  # one for each head
            raise UnknownError
        text += f"bias = Unsqueeze(i10, at2)\nbiased = Add({value}, bias)\n"
        value = "biased"
    text += "limits = Unsqueeze(places, last)\nreached = LessOrEqual(columns, limits)\n"
    kept = "reached"
    if (window := call.attr("local_window_size", -1)) > 0:
        text += f"""{ints(window=window)}first = Sub(limits, window)
            near = Greater(columns, first)
            local = And(reached, near)
            """
        kept = "local"
    return f"""{text}kept = Unsqueeze({kept}, at12)
        masked = Where(kept, {value}, lowest)
        weights = Softmax <axis: int = -1> (masked)
        mixed_groups = MatMul(weights, v_shared)
        mixed = Reshape(mixed_groups, by_head)
        {_rows("o0", "mixed")}"""
