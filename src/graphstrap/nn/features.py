"""From a graph's raw features to what the encoder sees: scaling, and structural features for graphs that have none.

What is learned from the training graph (column means, names, widths) is kept, so that a new graph is treated the same
way. A large table may not fit into memory: its statistics are those of some of its rows, and it is scaled when rows of
it are asked for, which gives the same ones (see `scaled.py`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph
from graphstrap.graph.blocks import (
    Block,
    Features,
    ScaledMatrix,
    SparseMatrix,
    dense,
    encodable,
    is_bag,
    is_large,
    sample_rows,
)
from graphstrap.graph.views import child_seed, hash32
from graphstrap.ops import propagate

_NUM_HOPS = 16
_CONSTANT = 4 * torch.finfo(torch.float32).eps  # a column that spreads less, of its largest value, is rounding alone
_POSITIVE = 0x7FFF_FFFF_FFFF_FFFF
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")  # as Python writes it
_NO_ROOM = (
    "data.structural_columns=always puts columns beside features that are too many to be held at once: "
    "leave it at missing"
)


@dataclass(frozen=True, eq=False)
class FeatureTransform:
    """Fitted on the training graph, applied to any graph.

    Args:
        scaling: "row", "column" or "none".
        structural_size: random-projection columns for a node type without features.
        sizes: width of each raw block, 0 for a type without features.
        names: the raw columns' names, where the graph has them.
        means, scales: for "column", one tensor per block.
        structural_scale: how long rows of structural columns are that stand beside features; 0 where none do.
    """

    scaling: str
    structural_size: int
    sizes: tuple[int, ...]
    names: tuple[str, ...] | None
    means: tuple[Tensor, ...] = ()
    scales: tuple[Tensor, ...] = ()
    structural_scale: float = 0.0

    @classmethod
    def fit(
        cls, graph: Graph, *, scaling: str, structural_size: int, structural_columns: str = "missing"
    ) -> FeatureTransform:
        """`structural_columns` "always": beside features too, as long as a row of those is on average."""
        transform = cls(scaling, structural_size, graph.num_features, graph.feature_names)
        if scaling == "column":
            blocks = [dense(sample_rows(block)) for block in transform._filled(graph)]
            blocks = [block if len(block) else block.new_zeros(1, block.shape[1]) for block in blocks]
            spreads = [block.std(0, correction=0) for block in blocks]
            largest = [torch.where(top > 0, top, torch.ones_like(top)) for top in (b.abs().amax(0) for b in blocks)]
            pairs = zip(spreads, largest, strict=True)
            scales = tuple(torch.where(spread > _CONSTANT * top, spread, top) for spread, top in pairs)
            transform = replace(transform, means=tuple(block.mean(0) for block in blocks), scales=scales)
        if structural_columns == "always":
            transform = replace(transform, structural_scale=_mean_length(transform(graph), graph.num_features))
        return transform

    @property
    def output_sizes(self) -> tuple[int, ...]:
        beside = self.structural_size + 2 if self.structural_scale else 0
        return tuple(size + beside if size else self.structural_size + 2 for size in self.sizes)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with the features that the encoder was trained on."""
        blocks = self._scaled_when_read(graph)
        prepared: list[Block] = [block if is_large(block) else block.apply(block.raw) for block in blocks]
        if self.structural_scale:
            sides = zip(prepared, self._structural_parts(graph), self.sizes, strict=True)
            length = self.structural_scale
            prepared = [_side_by_side(block, length * part) if size else block for block, part, size in sides]
        return graph.with_features(*prepared)

    def when_read(self, graph: Graph) -> Graph:
        """The same, with every block scaled when rows of it are asked for, whatever its size."""
        if self.structural_scale:
            raise InputError(_NO_ROOM)
        return graph.with_features(*self._scaled_when_read(graph))

    def _scaled_when_read(self, graph: Graph) -> list[ScaledMatrix]:
        scaled = []
        for number, block in enumerate(self._filled(self._matched(graph))):
            # Structural columns have a scale of their own, and negative entries that would not sum to anything.
            scaling = "none" if self.scaling == "row" and not self.sizes[number] else self.scaling
            mean, scale = (self.means[number], self.scales[number]) if scaling == "column" else (None, None)
            assert not isinstance(block, ScaledMatrix)
            scaled.append(ScaledMatrix(block, scaling, mean, scale))
        return scaled

    def _matched(self, graph: Graph) -> Graph:
        """The graph with its columns in the order of training, or an error that says what differs."""
        names, wanted, block = graph.feature_names, self.names, graph.features[0]
        if not wanted or not names or block is None or len(graph.features) != 1:
            if graph.num_features != self.sizes:
                raise InputError(
                    f"the model was trained on {_describe(self.sizes)}, this graph has "
                    f"{_describe(graph.num_features)}: give the same feature columns"
                )
            return graph
        if names == wanted:
            return graph
        missing = [name for name in wanted if name not in names]
        if missing:
            raise InputError(
                f"the model was trained on {len(wanted)} feature columns, this graph has {len(names)} "
                f"and {missing[0]!r} is not among them: give the same feature columns"
            )
        assert not isinstance(block, ScaledMatrix)
        picked = dense(encodable(block))[:, [names.index(name) for name in wanted]]
        return replace(graph, features=(picked,), feature_names=wanted)

    def _filled(self, graph: Graph) -> list[Block]:
        """The raw blocks, structural ones where there are none."""
        if all(block is not None for block in graph.features):
            return cast(list[Block], list(graph.features))
        parts = self._structural_parts(graph)
        return [part if block is None else block for block, part in zip(graph.features, parts, strict=True)]

    def _structural_parts(self, graph: Graph) -> Sequence[Tensor]:
        """Structural columns of each node type."""
        structural = structural_features(graph, num_columns=self.structural_size)
        return torch.split(structural, np.diff(graph.type_offsets).tolist())

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What to save: a JSON object and named tensors."""
        tensors = {f"means.{i}": mean for i, mean in enumerate(self.means)}
        tensors |= {f"scales.{i}": scale for i, scale in enumerate(self.scales)}
        names = ("scaling", "structural_size", "sizes", "names", "structural_scale")
        return {name: getattr(self, name) for name in names}, tensors

    @classmethod
    def from_state(cls, info: dict[str, Any], tensors: dict[str, Tensor]) -> FeatureTransform:
        """A ValueError where the parts do not belong together."""
        count = len(tensors) // 2
        transform = cls(
            info["scaling"],
            info["structural_size"],
            tuple(info["sizes"]),
            None if info["names"] is None else tuple(info["names"]),
            tuple(tensors[f"means.{i}"] for i in range(count)),
            tuple(tensors[f"scales.{i}"] for i in range(count)),
            float(info.get("structural_scale", 0.0)),
        )
        filled = [size or transform.structural_size + 2 for size in transform.sizes]
        wanted = [(size,) for size in filled] if transform.scaling == "column" else []
        for found in (transform.means, transform.scales):
            if [tuple(t.shape) for t in found] != wanted or any(t.dtype != torch.float32 for t in found):
                raise ValueError("means and scales do not fit the feature columns")
        if not all(type(size) is int and 0 <= size < 2**31 for size in (transform.structural_size, *transform.sizes)):
            raise ValueError("the numbers of feature columns are none")
        if not all(isinstance(name, str) for name in transform.names or ()):
            raise ValueError("the names of feature columns are none")
        if not 0.0 <= transform.structural_scale < 1e30:
            raise ValueError("the length of structural columns is none")
        return transform


def raw_features(graph: Graph) -> Features | None:
    """What embeddings are compared with: features as given, but columns of measurements each with mean 0 and variance
    1, as the encoder gets them, since one of large numbers would drown the others. None where there are none, or node
    types have their own. The paper's row is of features as they are; the tables of `reproduce` are, too."""
    x = graph.x if len(graph.features) == 1 else None
    if not isinstance(x, Tensor) or is_large(x) or is_bag(x):
        return x
    return FeatureTransform.fit(graph, scaling="column", structural_size=1)(graph).x


def _mean_length(prepared: Graph, sizes: Sequence[int]) -> float:
    """Of the rows of features; 0 where there are none."""
    blocks = [block for block, size in zip(prepared.features, sizes, strict=True) if size and block is not None]
    lengths = [dense(sample_rows(block)).norm(dim=1) for block in blocks]
    return float(torch.cat(lengths).mean()) if lengths else 0.0


def _side_by_side(block: Block, columns: Tensor) -> Block:
    """[block | columns]; sparse where the block is."""
    if isinstance(block, Tensor):
        return torch.cat([block, columns.to(block)], dim=1)
    if not isinstance(block, SparseMatrix):
        raise InputError(_NO_ROOM)
    from scipy.sparse import csr_matrix, hstack

    joined = SparseMatrix.from_scipy(hstack([block.to_scipy(), csr_matrix(columns.cpu().numpy())], format="csr"))
    return joined.map(lambda part: part.to(block.device))


def structural_features(graph: Graph, *, num_columns: int, seed: int = 0) -> Tensor:
    """(N, num_columns + 2): where a node sits in the graph, then log in-degree and log out-degree.

    A random vector for each node, averaged over neighbours sixteen times, centred and scaled to unit length: nodes that
    reach the same part of the graph get similar vectors. As good as eigenvectors (docs/LOG.md), linear in
    the graph, and the same in every graph that has the node: the vector, of +1 and -1, is a hash of its external id.
    """
    ids = torch.from_numpy(id_numbers(graph.external_ids)).to(graph.device)
    columns = torch.arange(num_columns, device=graph.device)
    words = hash32(hash32(ids, child_seed(seed, 7))[:, None] * num_columns + columns, child_seed(seed, 8))
    spread = torch.as_tensor((words & 1) * 2 - 1).float()  # (N, num_columns)
    for _ in range(_NUM_HOPS):
        spread = propagate(graph, CLEAN, spread, norm="mean")
        spread = spread - spread.mean(0)  # as well at the end alone, but for float32 where all nodes have mixed by then
    degrees = torch.stack([graph.in_degrees, graph.transpose.indptr.diff()], dim=1).float().log1p()
    return torch.cat([F.normalize(spread, dim=1), degrees / 16.0], dim=1)


def id_numbers(ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Non-negative integers for ids of any type: the integer itself, also where it is written as text, since one id
    that is no number makes all of them text; or a hash of the text."""
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64) & _POSITIVE
    return np.fromiter((_id_number(str(one)) for one in ids), dtype=np.int64, count=len(ids)) & _POSITIVE


def _id_number(text: str) -> int:
    if len(text) <= 20 and _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return int(text)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _describe(sizes: tuple[int, ...]) -> str:
    return " and ".join(f"{size} feature columns" if size else "no features" for size in sizes)
