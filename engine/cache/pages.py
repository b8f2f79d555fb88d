"""Who owns which page. Knows counts, not tensors."""

from __future__ import annotations


class PageAllocator:
    """A free list of equal pages."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int] | None:
        """`count` pages, or None (and nothing taken) when there are not enough."""
        if count > len(self._free):
            return None
        return [self._free.pop() for _ in range(count)]

    def give_back(self, pages: list[int]) -> None:
        self._free.extend(reversed(pages))

    def check_integrity(self, owned: list[list[int]]) -> None:
        """Every page is free or owned exactly once; an AssertionError is our own mistake."""
        everything = sorted(self._free + [page for pages in owned for page in pages])
        assert everything == list(range(self.num_pages)), "a page is lost or owned twice"
