"""Training: one loop for every method, one model or many."""

from graphstrap.train.batches import make_sampler, place_graph
from graphstrap.train.log import Journal
from graphstrap.train.loop import DivergedError, Evaluate, InterruptedTrainingError, Trainee, train, train_together
from graphstrap.train.mirror import Mirror, make_mirrors

__all__ = [
    "DivergedError",
    "Evaluate",
    "InterruptedTrainingError",
    "Journal",
    "Mirror",
    "Trainee",
    "make_mirrors",
    "make_sampler",
    "place_graph",
    "train",
    "train_together",
]
