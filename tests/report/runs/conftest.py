from calling import command

__all__ = ["command"]
