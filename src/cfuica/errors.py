"""Errors that a user of cfuica can cause and repair.

A message is one sentence: what was given and where (file, line, column), what was expected, and
what to do about it. Any other exception is a bug in cfuica and keeps its traceback.
"""

from __future__ import annotations


class CfuicaError(Exception):
    """Base of all errors that the caller can repair; printed without a traceback."""


class DataError(CfuicaError):
    """The data cannot be read, or does not have what a task needs."""


class NoRows(DataError):
    """A file has columns and no rows, which is fine where it may be empty."""


class SettingsError(CfuicaError):
    """A setting or an argument is out of range, or contradicts another."""


class ModelFileError(CfuicaError):
    """A saved model is missing, damaged, not a model, or of a newer version."""


class Interrupted(CfuicaError):
    """A signal stopped a command; its finished work is saved."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal
