"""Training: one loop for every method, one model or many."""

from graphstrap.train.loop import DivergedError, Evaluate, InterruptedTrainingError, Trainee, train, train_together

__all__ = ["DivergedError", "Evaluate", "InterruptedTrainingError", "Trainee", "train", "train_together"]
