"""Hydra configuration: `train.yaml` and `evaluate.yaml` are the roots, each folder is a group of choices."""
