"""One model, many conversations. The app imports `engine.api` and nothing deeper."""
