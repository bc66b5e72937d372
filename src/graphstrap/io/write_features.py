"""Dense features on their way into a store: fewer columns, fewer bits, and none that are missing, chunk by chunk.

PCA         mean and covariance add up over the chunks in float64; then every chunk is projected
uint8       the least and the largest value of each column are found first; then every chunk is rounded
derived     a node type without features gets the mean of its neighbours that have them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph.blocks import QuantisedMatrix, encode, find_steps
from graphstrap.graph.csr import neighbour_means
from graphstrap.io.arrays import BFLOAT16, Array
from graphstrap.io.files import make_array_file
from graphstrap.io.store_format import Report, StoreBuilder

_STORED = {"fp32": "<f4", "fp16": "<f2", "bf16": BFLOAT16, "uint8": "|u1"}
_LARGEST_HALF = 65504.0


@dataclass(frozen=True)
class BlockWriter:
    """How to keep features: `dtype` is fp32, fp16, bf16 or uint8; blocks with more than `pca` columns are projected."""

    builder: StoreBuilder
    report: Report
    dtype: str = "fp32"
    pca: int | None = None
    chunk_bytes: int = 1 << 26

    def write(self, name: str, raw: Array) -> dict[str, Any]:
        """One block from (N, F) numbers of any type, perhaps memory-mapped; what `store.json` says of it."""
        width = int(raw.shape[1])
        project: Callable[[Tensor], Tensor] = _as_it_is
        if self.pca is not None and width > self.pca:
            width, project = self.pca, self._fit_pca(name, raw, self.pca)
        scale = offset = None
        if self.dtype == "uint8":
            scale, offset = self._find_range(raw, project, width)
            self.builder.write(f"{name}.scale", scale)
            self.builder.write(f"{name}.offset", offset)
        with self.builder.array(name, dtype=_STORED[self.dtype], columns=(width,)) as writer:
            for chunk in self._chunks(raw, "writing features"):
                x = project(chunk)
                if scale is not None and offset is not None:
                    x = encode(x, scale=scale, offset=offset)
                elif self.dtype == "fp16" and bool((x.abs() > _LARGEST_HALF).any()):
                    raise InputError(
                        f"a feature is beyond fp16's {_LARGEST_HALF:,.0f}: scale it, or use --feature-dtype bf16"
                    )
                writer.append(x)
        return {"kind": "dense" if scale is None else "quantised", "columns": width}

    def derive(self, blocks: list[dict[str, Any] | None], type_offsets: tuple[int, ...]) -> list[dict[str, Any] | None]:
        """Give every type without features the mean of its neighbours of one type that has them, as long as there are
        any.

        Of several such types the one with the most edges to it is taken; types that got theirs earlier serve the next.
        """
        blocks, links = list(blocks), _count_links(self.builder, type_offsets)
        while True:
            known = [t for t, block in enumerate(blocks) if block is not None]
            reached = {t: max(known, key=lambda k: links[k, t]) for t, b in enumerate(blocks) if b is None and known}
            reached = {t: k for t, k in reached.items() if links[k, t] > 0}
            if not reached:
                return blocks
            for t, k in reached.items():
                blocks[t] = self._derive(t, k, blocks[k] or {}, type_offsets)

    def _derive(
        self, kind: int, origin: int, described: dict[str, Any], type_offsets: tuple[int, ...]
    ) -> dict[str, Any]:
        """Features of one node type from those of another that are written already, by way of a float32 file."""
        read = self.builder.read_tensor
        directions = [(read(f"{way}indptr"), read(f"{way}indices")) for way in ("", "out_")]
        block: Tensor | QuantisedMatrix = read(f"features.{origin}")
        if described["kind"] == "quantised":
            block = QuantisedMatrix(*(read(f"features.{origin}{one}") for one in ("", ".scale", ".offset")))
        rows, width = (type_offsets[kind], type_offsets[kind + 1]), int(described["columns"])
        path = self.builder.scratch / f"derived.{kind}.npy"
        derived, begin = make_array_file(path, (rows[1] - rows[0], width)), 0
        max_edges = max(1, self.chunk_bytes // (16 * max(1, width)))
        for means in neighbour_means(directions, block, rows=rows, first=type_offsets[origin], max_edges=max_edges):
            derived[begin : begin + len(means)] = means.numpy()
            begin += len(means)
            self.report("deriving features", begin / max(1, len(derived)))
        result = replace(self, pca=None).write(f"features.{kind}", derived)
        del derived
        path.unlink()
        return result

    def _fit_pca(self, name: str, raw: Array, num_directions: int) -> Callable[[Tensor], Tensor]:
        """The projection on the directions of largest variance, each with its largest entry positive."""
        width, count = int(raw.shape[1]), 0
        total, products = torch.zeros(width, dtype=torch.float64), torch.zeros(width, width, dtype=torch.float64)
        shift = None  # about the mean: keeps the sums small
        for chunk in self._chunks(raw, "measuring features"):
            shift = chunk.double().mean(0) if shift is None else shift
            centred = chunk.double() - shift
            total += centred.sum(0)
            products.addmm_(centred.T, centred)
            count += len(chunk)
        if shift is None or count < num_directions:
            raise InputError(f"--pca {num_directions} needs at least as many nodes as directions: {name} has {count}")
        mean = total / count
        covariance = products / count - mean[:, None] * mean[None, :]
        directions = torch.linalg.eigh(covariance).eigenvectors.flip(1)[:, :num_directions]  # (F, K)
        largest = directions.gather(0, directions.abs().argmax(0, keepdim=True))
        directions = (directions * largest.sign()).float()
        centre = (shift + mean).float()
        self.builder.write(f"{name}.pca_mean", centre)
        self.builder.write(f"{name}.pca_components", directions)
        return lambda x: (x - centre) @ directions

    def _find_range(self, raw: Array, project: Callable[[Tensor], Tensor], width: int) -> tuple[Tensor, Tensor]:
        if not len(raw):
            return find_steps(torch.zeros(width), torch.zeros(width))
        low, high = torch.full((width,), torch.inf), torch.full((width,), -torch.inf)
        for chunk in self._chunks(raw, "finding ranges"):
            x = project(chunk)
            low, high = torch.minimum(low, x.amin(0)), torch.maximum(high, x.amax(0))
        return find_steps(low, high)

    def _chunks(self, raw: Array, stage: str) -> Iterator[Tensor]:
        """Rows as float32, all of them finite."""
        step = max(1, self.chunk_bytes // (32 * max(1, int(raw.shape[1]))))
        for begin in range(0, len(raw), step):
            with np.errstate(over="ignore"):  # too large a number becomes infinite
                chunk = torch.from_numpy(np.array(raw[begin : begin + step], dtype=np.float32))
            if not bool(chunk.isfinite().all()):
                row = begin + int((~chunk.isfinite()).any(1).nonzero()[0])
                raise InputError(f"a feature of node {row} is NaN or infinite: replace it by a number")
            yield chunk
            self.report(stage, min(1.0, (begin + step) / len(raw)))


def _as_it_is(x: Tensor) -> Tensor:
    return x


def _count_links(builder: StoreBuilder, type_offsets: tuple[int, ...]) -> Array:
    """(T, T) edges between types, in either direction."""
    indptr, indices = builder.read("indptr"), builder.read("indices")
    num_types, step = len(type_offsets) - 1, 1 << 22
    links = np.zeros((num_types, num_types), dtype=np.int64)
    for target in range(num_types):
        first, last = int(indptr[type_offsets[target]]), int(indptr[type_offsets[target + 1]])
        for begin in range(first, last, step):
            kinds = np.searchsorted(type_offsets, indices[begin : min(last, begin + step)], side="right") - 1
            links[:, target] += np.bincount(kinds, minlength=num_types)
    return np.asarray(links + links.T)
