"""Small networks of the kinds that people export, with random weights, and their example inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, WORDS = 32, 4, 50
EACH = WIDTH // HEADS


class Attention(nn.Module):
    """Self-attention; ``past`` holds the keys and values of earlier calls."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask=None, past=None):
        batch, length, _ = x.shape
        queries, keys, values = self.project(x).view(batch, length, 3, HEADS, EACH).permute(2, 0, 3, 1, 4)
        if past is not None:
            keys, values = torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2)
        y = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(batch, length, WIDTH)), keys, values


class Layer(nn.Module):
    """A transformer's layer; it normalizes before its parts (GPT, ViT) or after them (BERT)."""

    def __init__(self, before: bool) -> None:
        super().__init__()
        self.before, self.attention = before, Attention()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def feed(self, x):
        return self.narrow(functional.gelu(self.wide(x)))

    def forward(self, x, mask=None, past=None):
        if self.before:
            y, *cache = self.attention(self.first(x), mask, past)
            x = x + y
            return x + self.feed(self.second(x)), *cache
        y, *cache = self.attention(x, mask, past)
        x = self.first(x + y)
        return self.second(x + self.feed(x)), *cache


class Encoder(nn.Module):
    """As BERT: words, a mask of padding, kinds of segments."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        self.kinds, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Layer(before=False) for _ in range(2))
        self.pool = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids, mask, kinds):
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1]))[None] + self.kinds(kinds))
        bias = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for layer in self.layers:
            x = layer(x, bias)[0]
        return x, torch.tanh(self.pool(x[:, 0]))


class Decoder(nn.Module):
    """As GPT-2: the cache of keys and values is an input and an output."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        self.layers, self.norm = nn.ModuleList(Layer(before=True) for _ in range(2)), nn.LayerNorm(WIDTH)

    def forward(self, ids, *caches):
        past, length = caches[0].shape[2], ids.shape[1]
        place = torch.arange(past, past + length)
        x = self.words(ids) + self.places(place)[None]
        mask = torch.arange(past + length)[None, :] <= place[:, None]
        made = []
        for number, layer in enumerate(self.layers):
            x, keys, values = layer(x, mask, caches[2 * number : 2 * number + 2])
            made += [keys, values]
        return self.norm(x) @ self.words.weight.T, *made


class CachedDecoder(Decoder):
    def forward(self, ids, k0, v0, k1, v1):
        return super().forward(ids, k0, v0, k1, v1)


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.first, self.places = (
            nn.Parameter(torch.randn(1, 1, WIDTH)),
            nn.Parameter(torch.randn(1, 17, WIDTH)),
        )
        self.layers = nn.ModuleList(Layer(before=True) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        for layer in self.layers:
            x = layer(x)[0]
        return self.head(self.norm(x)[:, 0])


class Llama(nn.Module):
    """RMSNorm, rotary embeddings, two heads of keys for four of queries, a gated feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.queries, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.keys, self.values = (nn.Linear(WIDTH, 2 * EACH, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.register_buffer("speed", 10000 ** -(torch.arange(0, EACH, 2) / EACH))

    def forward(self, x, places):
        batch, length, _ = x.shape
        angle = places[:, :, None].float() * self.speed
        angle = torch.cat([angle, angle], -1)[:, None]

        def heads(linear, count):
            return linear(y).view(batch, length, count, EACH).transpose(1, 2)

        def turn(part):
            left, right = part.chunk(2, -1)
            return part * angle.cos() + torch.cat([-right, left], -1) * angle.sin()

        y = self.first(x)
        queries, keys = turn(heads(self.queries, HEADS)), turn(heads(self.keys, 2))
        y = functional.scaled_dot_product_attention(
            queries, keys, heads(self.values, 2), is_causal=True, enable_gqa=True
        )
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Recurrent(nn.Module):
    """A classifier of sequences, by two layers in both directions."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.layers = kind(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 5)

    def forward(self, ids):
        return self.head(self.layers(self.words(ids))[0][:, -1])


@dataclass(frozen=True)
class Network:
    """How a network is made and exported. ``sizes`` names the dims of each input that may change."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    sizes: tuple[dict[int, str], ...]
    opset: int = 20
    dynamo: bool = True


class Branches(nn.Module):
    """torch.cond: an If, whose branches read values and weights outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        mean = x.mean(1)
        return torch.cond(x.sum() > 0, lambda x: self.linear(x) + mean, lambda x: x.relu() - mean, (x[:, 0],))


class Grows(nn.Module):
    """Loops of a script: over the axis of time, with a result that grows and a list; and by the data."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        state, found, states = x[:, 0] * 0, x, []
        for i in range(x.size(1)):
            state = torch.tanh(self.linear(state) + x[:, i])
            if bool(state.sum() > 0):
                state = state * 0.5 - i
            found = torch.cat([found, state[:, None] + found[:, :1]], 1)
            states.append(state)
        while bool(state.abs().sum() > 1.0):
            state = state * 0.7
        return found, state, torch.stack(states, 1)


class Scans(nn.Module):
    """torch's scan over the axis of time: a Scan."""

    def forward(self, x):
        from torch._higher_order_ops.scan import scan

        return scan(lambda state, item: (state * 0.9 + item, (state + item).sin()), x[:, 0] * 1, x, dim=1)


def _ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, WORDS, shape)


def _encoder_inputs() -> tuple[torch.Tensor, ...]:
    return _ids(2, 7), torch.ones(2, 7, dtype=torch.long), torch.zeros(2, 7, dtype=torch.long)


def _decoder_inputs() -> tuple[torch.Tensor, ...]:
    return _ids(2, 3), *(torch.randn(2, HEADS, 5, EACH) for _ in range(4))


def _sequences() -> tuple[torch.Tensor, ...]:
    return (torch.randn(2, 6, WIDTH),)


def _llama_inputs() -> tuple[torch.Tensor, ...]:
    return torch.randn(2, 6, WIDTH), torch.arange(6)[None].repeat(2, 1)


_BOTH = {0: "batch", 1: "length"}
_CACHE = {0: "batch", 2: "past"}

NETWORKS = {
    "encoder": Network(Encoder, _encoder_inputs, (_BOTH, _BOTH, _BOTH)),
    "decoder": Network(CachedDecoder, _decoder_inputs, (_BOTH, *[_CACHE] * 4)),
    "decoder-opset-24": Network(CachedDecoder, _decoder_inputs, (_BOTH, *[_CACHE] * 4), opset=24),
    "vision": Network(VisionTransformer, lambda: (torch.randn(2, 3, 32, 32),), ({0: "batch"},)),
    "llama": Network(Llama, _llama_inputs, (_BOTH, _BOTH)),
    "llama-opset-24": Network(Llama, _llama_inputs, (_BOTH, _BOTH), opset=24),
    "branches": Network(Branches, _sequences, (_BOTH,)),
    "grows": Network(lambda: torch.jit.script(Grows()), _sequences, (_BOTH,), 18, dynamo=False),
    "scans": Network(Scans, _sequences, (_BOTH,)),
    **{
        name: Network(lambda kind=kind: Recurrent(kind), lambda: (_ids(2, 7),), (_BOTH,), 17, dynamo=False)
        for name, kind in (("lstm", nn.LSTM), ("gru", nn.GRU), ("rnn", nn.RNN))
    },
}
