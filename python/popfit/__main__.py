"""The command as ``python -m popfit``."""

from popfit._command import command

command()
