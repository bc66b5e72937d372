"""What embeddings know of edges that were hidden, beside raw features and an untrained encoder: the protocol `links`.

The model is trained anew without the hidden edges, or is the run's own, which saw them; the outcome says which.
"""

from __future__ import annotations

from graphstrap.estimator import BGRL, random_init
from graphstrap.evaluate import Embeddings, Evaluation, evaluate_links, hide_edges, summarise_links
from graphstrap.features import raw_features
from graphstrap.graph import Graph


def score_links(
    model: BGRL,
    graph: Graph,
    *,
    num_runs: int = 1,
    refit: bool = True,
    baselines: bool = True,
    progress: bool | None = None,
) -> dict[str, Evaluation]:
    """One evaluation for each candidate, the trained one last.

    Args:
        num_runs: how often edges are drawn and hidden.
        refit: train anew without them, which takes as long as `fit` did.
        baselines: also evaluate raw features and an untrained encoder.
        progress: show a bar while training anew; None: as `fit` does.
    """
    runs: dict[str, list[tuple[float, float | None]]] = {}
    for seed in range(num_runs):
        edges = hide_edges(graph, seed=seed)
        left = edges.remaining
        candidates: dict[str, Embeddings] = {}
        if baselines and (raw := raw_features(left)) is not None:
            candidates["raw features"] = raw
        if baselines:
            candidates["random init"] = random_init(left, model.recipe_, seed=model.seed, device=model.device)
        trained = model
        if refit:
            fresh = BGRL(recipe=model.recipe_, seed=model.seed, device=model.device)
            trained = fresh.fit(left, progress=progress)
        candidates[model.recipe_.method.name] = trained.embed(left)
        for name, h in candidates.items():
            runs.setdefault(name, []).append(evaluate_links(h, edges))
    trained_how = "trained anew without them" if refit else "by an encoder that was trained with them"
    ways = {"raw features": "features as they are", "random init": "by an untrained encoder"}
    return {name: summarise_links(found, how=ways.get(name, trained_how)) for name, found in runs.items()}
