"""Text conversations: hand-made templates, facts told long before, and the filter for teacher text."""
