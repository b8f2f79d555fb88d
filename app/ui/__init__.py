"""The page. The only folder that imports gradio, and only in layout, wiring, theme and server."""
