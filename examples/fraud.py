"""Fraud-like detection with 1 % of the labels, on a generated graph of transactions.

    python examples/fraud.py

Accounts have six columns that hint weakly at fraud. Fraudsters pay through rings of mules: who pays whom says more than
what an account looks like. Gradient boosting on the columns is compared with the same boosting on embeddings, which
come from all accounts and no label. The graph is made up: the figures say how the tools differ on such a graph, not
how much fraud anyone will find.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import graphstrap as gs
from graphstrap.io.scipy import to_scipy


def make_accounts(num_accounts: int, *, seed: int) -> gs.Graph:
    """One account in twenty is in a ring: it pays inside of it as often as outside."""
    random = np.random.default_rng(seed)
    is_fraud = random.random(num_accounts) < 0.05
    x = random.normal(size=(num_accounts, 6)) + 0.5 * is_fraud[:, None] * random.random(6)
    source = np.repeat(np.arange(num_accounts), 4)
    target = random.integers(num_accounts, size=len(source))
    rings = np.array_split(random.permutation(np.flatnonzero(is_fraud)), max(1, int(is_fraud.sum()) // 12))
    ring_of = {account: ring for ring in rings for account in ring}
    for payment in np.flatnonzero(is_fraud[source] & (random.random(len(source)) < 0.5)):
        target[payment] = random.choice(ring_of[source[payment]])
    return gs.Graph.from_edges(
        source, target, num_nodes=num_accounts, x=x.astype(np.float32), labels=is_fraud.astype(int), name="accounts"
    )


def main(num_accounts: int = 20_000, *, steps: int = 300, seed: int = 0) -> dict[str, float]:
    graph = make_accounts(num_accounts, seed=seed)
    assert graph.labels is not None
    x, y = np.asarray(graph.x), graph.labels.numpy()
    h = gs.BGRL(seed=seed, settings={"train.steps": steps}).fit(graph).embed(graph)  # labels are not looked at
    adjacency = to_scipy(graph)
    around = adjacency @ x / np.maximum(1, adjacency.sum(1)).reshape(-1, 1)

    labelled = np.zeros(num_accounts, dtype=bool)
    order = np.random.default_rng(seed + 1).permutation(num_accounts)
    for kind in (0, 1):  # 1 % of each, or there would be hardly a fraud to learn from
        members = order[y[order] == kind]
        labelled[members[: max(2, len(members) // 100)]] = True
    print(f"{graph}: {labelled.sum()} accounts with a label, {y[labelled].sum()} of them fraud")

    boosting = HistGradientBoostingClassifier(random_state=0)
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    ways = {
        "boosting, columns": (boosting, x),
        "boosting, columns and mean of neighbours'": (boosting, np.hstack([x, around])),
        "boosting, embeddings": (boosting, h),
        "boosting, columns and embeddings": (boosting, np.hstack([x, h])),
        "linear, columns": (linear, x),
        "linear, embeddings": (linear, h),
    }
    scores = {"chance": 100 * float(y.mean())}
    for name, (classifier, rows) in ways.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few rows: boosting and bins
            classifier.fit(rows[labelled], y[labelled])
        scores[name] = 100 * average_precision_score(y[~labelled], classifier.predict_proba(rows[~labelled])[:, 1])
    for name, score in scores.items():
        print(f"{name:42} average precision {score:5.1f} %")
    return scores


if __name__ == "__main__":
    main()
