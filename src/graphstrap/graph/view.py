"""View: a description of an augmented graph, not a copy of it.

A ViewSpec says how strongly to perturb; a View is one draw: the spec and a seed. Which edges and which feature columns
survive follows from the seed through `keep`, so a view costs nothing to make, to store or to send.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

Probability = float | Tensor


@dataclass(frozen=True, eq=False)
class ViewSpec:
    """How to perturb a graph.

    Args:
        edge_drop_prob: probability that an edge is dropped; or one per edge, shape (E,), indexed by global edge id.
        feature_mask_prob: probability that a feature is masked; or one per column, shape (F,).
        mask_elements: draw a mask for every node's every feature instead of one for each column (the paper's choice).
        drop_directions_together: drop u->v and v->u together, of whatever types; the paper's code drops each direction
            on its own.
        shuffle_nodes: permute the rows of the features within each node type: a corrupted graph, as in DGI.
    """

    edge_drop_prob: Probability = 0.0
    feature_mask_prob: Probability = 0.0
    mask_elements: bool = False
    drop_directions_together: bool = False
    shuffle_nodes: bool = False

    def __post_init__(self) -> None:
        for name in ("edge_drop_prob", "feature_mask_prob"):
            value = getattr(self, name)
            if isinstance(value, Tensor) and value.numel() == 0:
                continue
            low, high = (float(value.min()), float(value.max())) if isinstance(value, Tensor) else (value, value)
            if not 0.0 <= low <= high <= 1.0:
                raise ValueError(f"{name} must lie between 0 and 1, got {value}")

    @property
    def drops_edges(self) -> bool:
        return isinstance(self.edge_drop_prob, Tensor) or self.edge_drop_prob > 0

    @property
    def masks_features(self) -> bool:
        return isinstance(self.feature_mask_prob, Tensor) or self.feature_mask_prob > 0


@dataclass(frozen=True, eq=False)
class View:
    """One draw of a spec. The seed is an integer, or an int64 tensor on the device that is to use it."""

    spec: ViewSpec
    seed: int | Tensor = 0

    @property
    def masks(self) -> View:
        """What says which edges and features survive: this view, or CLEAN where all do, which backends draw once."""
        return self if self.spec.drops_edges or self.spec.masks_features else CLEAN


CLEAN = View(ViewSpec())
"""The graph as it is."""
