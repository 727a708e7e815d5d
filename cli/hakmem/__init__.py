"""The command line of hakmem, a drop-in malloc for Linux."""

from importlib.metadata import version

__version__ = version("hakmem")
