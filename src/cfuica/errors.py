"""Errors that a user of cfuica can cause, and therefore can repair.

A message is one clear sentence: what was given and where (file, line, column), what was expected,
and what to do about it. Everything else that goes wrong is our own defect and stays a traceback.
"""

from __future__ import annotations


class CfuicaError(Exception):
    """Anything the caller can put right; the command line prints it without a traceback."""


class DataError(CfuicaError):
    """The data cannot be read, or cannot mean what was asked of it."""


class SettingsError(CfuicaError):
    """A setting or an argument is out of its range, or contradicts another."""


class ModelFileError(CfuicaError):
    """A saved model is missing, damaged, foreign, or of a newer version."""


class Interrupted(CfuicaError):
    """Somebody stopped a command; what it had done is kept."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal
