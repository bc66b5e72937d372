"""FromPyG: a module of PyTorch Geometric's kind, called as `module(x, edge_index)`, as an encoder.

    x            features without what the view masks                  (N, F), dense
    edge_index   the edges that the view keeps, sources over targets   (2, E')
    h            module(x, edge_index)                                 (N, D)

The view becomes arrays here, which our own encoders avoid: a step copies features and edges, and as their number
changes, steps are not captured on CUDA. Edge weights, types and columns are not handed on. Weights, and what the module
draws while training (dropout), come from PyTorch's global generators, seeded for it, by the view, and put back after.
Cost of a pass: the module's, and O(N F + E).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View
from graphstrap.nn.encoders import Encoder
from graphstrap.nn.encoders.gcn import shuffled_rows
from graphstrap.ops import kept_edge_index, masked_features
from graphstrap.run.recipe import ENCODERS

MakeModule = Callable[[int, int], nn.Module]


class FromPyG(Encoder):
    """What `make_module(num_features, embedding_size)` makes, called with the arrays of a view.

    Args:
        input_sizes: one width: several node types have no common `x`.
        layer_sizes: only the last counts, the embedding's.
        generator: source of the seed that the initial weights are drawn with.
    """

    is_captured = is_checked = False
    make_module: ClassVar[MakeModule]  # makes the module with fresh weights

    def __init__(
        self, input_sizes: Sequence[int], layer_sizes: Sequence[int], *, generator: torch.Generator, **ignored: Any
    ) -> None:
        super().__init__()
        if len(input_sizes) != 1:
            raise InputError(f"an added encoder takes one node type, this graph has {len(input_sizes)}: take mpnn")
        self.embedding_size = int(layer_sizes[-1])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            self.module = type(self).make_module(int(input_sizes[0]), self.embedding_size)

    def forward(self, graph: Graph, view: View = CLEAN) -> Tensor:
        x = masked_features(graph, view.masks)
        if view.spec.shuffle_nodes:
            x = x[shuffled_rows(graph, view, 0)]
        elif x is graph.x:
            x = x.clone()  # a module may begin in place
        with self._own_draws(view):
            h: Tensor = self.module(x, kept_edge_index(graph, view.masks))
        if h.shape != (graph.num_nodes, self.embedding_size):
            raise InputError(
                f"an added encoder gave {tuple(h.shape)} for {graph.num_nodes} nodes and an embedding of "
                f"{self.embedding_size} columns: let it end in the size that it is made with"
            )
        return h

    @contextmanager
    def _own_draws(self, view: View) -> Iterator[None]:
        """While training, what is drawn is a function of the view."""
        if not self.training:
            yield
            return
        device = next(self.parameters(), torch.zeros(0)).device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(int(view.seed))
            yield


def encoder_of(make_module: MakeModule) -> type[FromPyG]:
    """The encoder class that builds its module by this function."""
    return type("Added", (FromPyG,), {"make_module": staticmethod(make_module)})


def add_encoder(name: str, make_module: MakeModule) -> None:
    """Make an encoder of your own known as `encoder.name`, to every method that calls its encoder as a whole: all but
    GMI, MVGRL and the walks.

    Files hold its weights and its name, never its code: add it again, under the same name, before a run is loaded or
    resumed; or declare it as an entry point of the group `graphstrap.encoders` in a package, and the command line knows
    it too.

    Args:
        name: what recipes call it.
        make_module: `make_module(num_features, embedding_size)` gives a torch module that is called as
            `module(x, edge_index)`, as those of PyTorch Geometric are.

    Example:
        gs.add_encoder("sage", lambda num_features, size: SAGEConv(num_features, size))
        model = gs.BGRL(settings={"encoder.name": "sage"}).fit(graph)
    """
    ENCODERS.register(name)(encoder_of(make_module))
