"""Encoders map (Graph, View) to embeddings. Each is a torch module called as `encoder(graph, view)`, giving (N, D).

One page per encoder: it registers a subclass of `Encoder` by name and declares its settings beside it, as methods do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphstrap.graph import CLEAN, Graph, View
from graphstrap.run.recipe import EncoderSettings


class Encoder(nn.Module):
    """What methods and inference ask of an encoder.

    A subclass takes `(input_sizes, layer_sizes, *, generator, ...)`, where the rest are its settings by name, and sets
    these attributes where they differ:

    Settings: the dataclass of its section of a recipe.
    reads_edges: their types, weights and columns; takes `edge_size`. Others use at most the weights.
    is_layered: its layers can be run one by one over all nodes, see `api/layerwise.py`.
    follows_edges: an embedding depends on neighbours.
    uses_up_hops: every layer needs one hop of a sampled batch.
    is_captured: a step with it can be captured as a CUDA graph.
    is_checked: its shapes can be worked out without memory, so that a model file is checked before it is built.
    """

    Settings: ClassVar[type[EncoderSettings]] = EncoderSettings
    reads_edges: ClassVar[bool] = False
    is_layered: ClassVar[bool] = False
    follows_edges: ClassVar[bool] = True
    uses_up_hops: ClassVar[bool] = False
    is_captured: ClassVar[bool] = True
    is_checked: ClassVar[bool] = True

    embedding_size: int

    @classmethod
    def build(
        cls, settings: EncoderSettings, input_sizes: Sequence[int], *, edge_size: int, generator: torch.Generator
    ) -> Encoder:
        """The encoder with fresh weights, from its section of a recipe."""
        beside = ("own_features", "own_hops", "own_weight")
        apart = ("name", "hidden_sizes", "embedding_size", *beside, "batch_norm_statistics")
        options: dict[str, Any] = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name not in apart}
        if cls.reads_edges:
            options["edge_size"] = edge_size
        make: Callable[..., Encoder] = cls
        return make(input_sizes, [*settings.hidden_sizes, settings.embedding_size], generator=generator, **options)

    @classmethod
    def default_sizes(cls, hidden_size: int, embedding_size: int) -> tuple[int, int]:
        """The widths that the default recipe takes in place of a GCN's."""
        return hidden_size, embedding_size

    @classmethod
    def fewest_tensors(cls, settings: Any) -> int:
        """At least so many tensors are in a file of its weights: a check that costs nothing."""
        return 0

    def encode_all(self, others: Sequence[nn.Module], graph: Graph, view: View) -> list[Tensor]:
        """This encoder's embeddings of a view, and those of others like it, which get no gradient."""
        h: Tensor = self(graph, view)
        with torch.no_grad():
            return [h, *(other(graph, view) for other in others)]


def recalibrate_batch_norm(encoder: nn.Module, graphs: Iterable[Graph]) -> None:
    """Set batch-norm statistics to those of the clean graph that embeddings are made of, or to the mean over batches.

    The running averages of training describe augmented views, whose degrees and features are thinned out.
    """
    norms = [module for module in encoder.modules() if isinstance(module, nn.BatchNorm1d)]
    new_batch_weights = [norm.momentum for norm in norms]  # PyTorch's `momentum` is the weight of the NEW batch
    was_training = encoder.training
    encoder.eval()  # no dropout: what embeds has none
    for norm in norms:
        norm.train()
        norm.reset_running_stats()
    for number, graph in enumerate(graphs, start=1):
        for norm in norms:
            norm.momentum = 1.0 / number
        with torch.no_grad():
            encoder(graph, CLEAN)
    for norm, weight in zip(norms, new_batch_weights, strict=True):
        norm.momentum = weight
    encoder.train(was_training)
