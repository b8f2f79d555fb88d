"""Evaluation data made by code of its own: nothing here is used in training."""
