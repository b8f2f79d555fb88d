"""The Day-0 report: what a checkpoint asks for, what this machine has for it, and whether it would run."""

from engine.report.check import CheckReport, check_model

__all__ = ["CheckReport", "check_model"]
