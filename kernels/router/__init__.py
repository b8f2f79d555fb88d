"""Choice of experts per token."""

from kernels.router.reference import Scoring, route, route_fixed

__all__ = ["Scoring", "route", "route_fixed"]
