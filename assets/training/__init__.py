"""How the built-in model of assets/demo is made: one module per stage, run as `python -m assets.training.STAGE`."""
