"""Named protocols that say how good embeddings are, and the linear probe that labels nodes.

>>> print(evaluate(h, graph, protocol="paper"))         # doctest: +SKIP
accuracy 92.95 ± 0.50 (paper: fit on 10 %, C chosen on 10 %, tested on 80 %, 5 random splits)
"""

from __future__ import annotations

from graphstrap.evaluate._rows import Embeddings
from graphstrap.evaluate._splits import has_published_splits
from graphstrap.evaluate.links import HiddenEdges, evaluate_links, hide_edges, summarise_links
from graphstrap.evaluate.probe import LinearProbe, fit_probe
from graphstrap.evaluate.protocols import (
    BY_PUBLISHED_SPLITS,
    PROTOCOLS,
    Evaluation,
    check_labels_for,
    evaluate,
    evaluate_many,
)
from graphstrap.evaluate.seen import SAW_LABELS, has_seen_test_labels

__all__ = [
    "BY_PUBLISHED_SPLITS",
    "PROTOCOLS",
    "SAW_LABELS",
    "Embeddings",
    "Evaluation",
    "HiddenEdges",
    "LinearProbe",
    "check_labels_for",
    "evaluate",
    "evaluate_links",
    "evaluate_many",
    "fit_probe",
    "has_published_splits",
    "has_seen_test_labels",
    "hide_edges",
    "summarise_links",
]
