"""What a person sees and keeps: the page, the terminal commands and the store of conversations."""
