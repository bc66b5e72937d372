"""Recommendations by nearest neighbours on a bipartite graph of users and items, generated.

    python examples/recommend.py

Each user has two tastes out of twenty and buys mostly accordingly; items differ in popularity. One purchase of each
user is hidden; a recommender gives ten items that the user has not bought yet, and hits if the hidden one is among
them. BGRL gets the graph alone, without columns. What the fifty nearest users bought is recommended, users being near
by their embeddings, by the factors of an SVD, or by the purchases themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize

import graphstrap as gs

Array = np.ndarray[Any, Any]


def make_purchases(num_users: int, num_items: int, *, seed: int) -> tuple[Array, Array]:
    """(users, items) of all purchases, the hidden one of each user first."""
    random = np.random.default_rng(seed)
    taste, popularity = random.integers(20, size=num_items), random.pareto(2.0, size=num_items) + 0.1
    pairs = []
    for user in range(num_users):
        liked = np.isin(taste, random.integers(20, size=2))
        chance = popularity * np.where(liked, 1.0, 0.02)
        bought = random.choice(num_items, size=12, replace=False, p=chance / chance.sum())
        pairs += [(user, item) for item in bought]
    users, items = np.array(pairs).T
    return users, items


def hits(scores: Any, bought: Any, hidden: Array, *, k: int = 10) -> float:
    """How many users in a hundred find their hidden item among the k best that they have not bought."""
    scores = np.where(bought.toarray() > 0, -np.inf, scores.toarray() if sp.issparse(scores) else scores)
    best = np.argpartition(-scores, k, axis=1)[:, :k]
    return 100 * float((best == hidden[:, None]).any(axis=1).mean())


def near(vectors: Array, *, k: int = 50) -> Any:
    """(U, U) sparse: 1 for the k users nearest to each, by cosine."""
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, -np.inf)
    nearest = np.argpartition(-likeness, k, axis=1)[:, :k]
    rows = np.repeat(np.arange(len(vectors)), k)
    return sp.csr_matrix((np.ones(nearest.size), (rows, nearest.ravel())), shape=likeness.shape)


def main(num_users: int = 3000, num_items: int = 1000, *, steps: int = 300, seed: int = 0) -> dict[str, float]:
    users, items = make_purchases(num_users, num_items, seed=seed)
    is_hidden = np.arange(len(users)) % 12 == 0
    hidden, users, items = items[is_hidden], users[~is_hidden], items[~is_hidden]
    bought = sp.csr_matrix((np.ones(len(users)), (users, items)), shape=(num_users, num_items))

    graph = gs.Graph.from_edges(users, num_users + items, num_nodes=num_users + num_items, name="purchases")
    h = normalize(gs.BGRL(seed=seed, settings={"train.steps": steps}).fit(graph).embed(graph))
    likeness = {
        "nearest users by purchases": normalize(bought).toarray(),
        "nearest users by factors (SVD)": normalize(TruncatedSVD(64, random_state=0).fit_transform(bought)),
        "nearest users by BGRL": h[:num_users],
    }
    scores = {
        "most popular": hits(np.tile(np.asarray(bought.sum(0)), (num_users, 1)), bought, hidden),
        "bought together": hits(bought @ (bought.T @ bought), bought, hidden),
    }
    for name, vectors in likeness.items():
        scores[name] = hits(near(vectors) @ bought, bought, hidden)
    for name, score in scores.items():
        print(f"{name:40} hidden item among ten: {score:4.1f} % of users")
    return scores


if __name__ == "__main__":
    main()
