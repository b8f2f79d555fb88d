"""A small open teacher model: unpacked from its wheel, asked many things, sampled in bulk."""
