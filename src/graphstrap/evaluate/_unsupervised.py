"""What can be said of embeddings without fitting weights: nearest neighbours and clusters.

    neighbours    the k training nodes with the largest cos(h_i, h_j) vote, k in 1, 5, 10, 20; the most votes win, and
                  of equals the class with the smaller number
    clusters      k-means of the l2-normalised rows into as many clusters as there are classes

Cost: neighbours O(N N_train D) time in blocks of bounded memory; clusters O(N K D) a round.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphstrap.evaluate._axes import Block
from graphstrap.evaluate._rows import Index, Rows
from graphstrap.evaluate._splits import Split

NEIGHBOUR_COUNTS = (1, 5, 10, 20)
NUM_STARTS = 3  # of which the tightest is kept; ten found the same clusters on Amazon Computers


class Agreement(NamedTuple):
    """Between clusters and classes: 1 is perfect, 0 is what chance gives (exactly so for ARI)."""

    normalised_mutual_information: float
    adjusted_rand_index: float


def neighbour_accuracy(rows: Rows, labels: Index, *, split: Split) -> float:
    """Choose k on the validation nodes (of equals the smallest), then test it: the part that is right."""
    on_val = _neighbour_hits(rows, labels, nodes=split.val, train=split.train, counts=NEIGHBOUR_COUNTS)
    best = NEIGHBOUR_COUNTS[int(on_val.argmax())]
    on_test = _neighbour_hits(rows, labels, nodes=split.test, train=split.train, counts=(best,))
    return float(on_test[0]) / len(split.test)


def cluster_agreement(rows: Rows, labels: Index, *, nodes: Index, num_clusters: int, seed: int) -> Agreement:
    """Cluster `nodes` and compare with their labels."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    taken = rows.take(nodes)
    points: Any = taken.cpu().numpy() if isinstance(taken, Tensor) else taken
    found = KMeans(num_clusters, n_init=NUM_STARTS, random_state=seed).fit_predict(points)
    classes = labels[nodes]
    return Agreement(float(normalized_mutual_info_score(classes, found)), float(adjusted_rand_score(classes, found)))


def _neighbour_hits(rows: Rows, labels: Index, *, nodes: Index, train: Index, counts: tuple[int, ...]) -> Index:
    """How many of `nodes` get their class by the votes of each number of neighbours in `counts`."""
    known = rows.take(train)
    train_labels = torch.from_numpy(labels[train])
    num_nearest = min(max(counts), len(train))
    num_classes = int(train_labels.max()) + 1
    hits = np.zeros(len(counts), dtype=np.int64)
    for block in rows.blocks(nodes, width=max(len(train), num_nearest * num_classes)):
        nearest = _cosines(rows.take(block), known).topk(num_nearest, dim=1).indices.cpu()
        votes = torch.nn.functional.one_hot(train_labels[nearest], num_classes)  # (B, k, K)
        truth = torch.from_numpy(labels[block])
        hits += [int((votes[:, :count].sum(1).argmax(1) == truth).sum()) for count in counts]
    return hits


def _cosines(x: Block, y: Block) -> Tensor:
    product = x @ y.T
    return product if isinstance(product, Tensor) else torch.from_numpy(product.toarray())
