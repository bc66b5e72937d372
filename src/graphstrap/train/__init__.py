"""The one training loop, its schedules, monitors and progress bar."""

from graphstrap.train.loop import DivergedError, InterruptedTrainingError, train

__all__ = ["DivergedError", "InterruptedTrainingError", "train"]
