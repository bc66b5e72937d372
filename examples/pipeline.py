"""scikit-learn: embeddings in a `Pipeline`, classes by cross-validation.

    python examples/pipeline.py [dataset]

Cross-validation cuts tables into rows, and a graph has none: so the graph is embedded once, which needs no labels and
so leaks none, and the pipeline gets node numbers. Where every node has a label, the estimator itself is the first step.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer

import graphstrap as gs

Array = np.ndarray[Any, Any]


def rows_of(nodes: Array, *, table: Array) -> Array:
    rows: Array = table[nodes[:, 0]]
    return rows


def make_pipeline(table: Array) -> Pipeline:
    return Pipeline(
        [
            ("rows", FunctionTransformer(partial(rows_of, table=table))),
            ("scale", Normalizer()),
            ("classify", LogisticRegression(max_iter=2000)),
        ]
    )


def main(dataset: str = "digits", *, steps: int = 300, num_folds: int = 5) -> dict[str, float]:
    graph = gs.load(dataset)
    assert graph.labels is not None
    labels = graph.labels.numpy()
    nodes = np.flatnonzero(labels >= 0).reshape(-1, 1)
    y = labels[nodes[:, 0]]
    folds = StratifiedKFold(num_folds, shuffle=True, random_state=0)

    model = gs.BGRL(seed=0, settings={"train.steps": steps})
    tables = {"raw features": np.asarray(graph.x), "BGRL": model.fit_transform(graph)}
    scores = {}
    for name, table in tables.items():
        search = GridSearchCV(make_pipeline(table), {"classify__C": [1.0, 10.0, 100.0]}, cv=2)
        runs = 100 * cross_val_score(search, nodes, y, cv=folds)
        scores[name] = float(runs.mean())
        print(f"{name:14} accuracy {runs.mean():.1f} ± {runs.std():.1f} % over {num_folds} folds")

    whole = Pipeline([("embed", model), ("scale", Normalizer()), ("classify", LogisticRegression(max_iter=2000))])
    if (labels >= 0).all():
        whole.fit(graph, labels)
        print(f"a whole pipeline, fitted on all labels, says {whole.predict(graph)[:10]} where {labels[:10]} is right")
    return scores


if __name__ == "__main__":
    main(*sys.argv[1:2])
