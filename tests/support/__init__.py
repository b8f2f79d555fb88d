"""What the tests lean on: tiny checkpoints with known answers, number-format vectors, comparisons with messages."""
