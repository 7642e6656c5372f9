from calling import command
from tiny_runs import tiny_corpus

__all__ = ["command", "tiny_corpus"]
