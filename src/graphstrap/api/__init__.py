"""What users call: fit, embed, predict, compare; a graph's source, several seeds, folds, ensembles."""
