"""The trainable twin of `hy_v4_vl` in plain torch: same numbers as the engine, plus gradients and training losses."""
