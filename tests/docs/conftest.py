from tiny_runs import tiny_corpus

__all__ = ["tiny_corpus"]
