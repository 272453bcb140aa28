"""Ctrl-C, SIGTERM and a closed terminal as a request to stop at the next good moment."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

# Windows has no SIGHUP.
_SIGNALS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class StopRequest:
    """While entered, the first signal is remembered; a second one ends at once."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # Python hands signals to its main thread only; elsewhere the caller deals with them.
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                # What was ignored stays ignored: `nohup` means it.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            for each in self._before:  # a third one would only disturb the tidying up
                signal.signal(each, signal.SIG_IGN)
            raise KeyboardInterrupt
        self.signal = number
        # print is not safe inside a handler: the signal may have come in the middle of a print.
        with suppress(OSError):  # the terminal may be gone, which is no reason to lose the run
            os.write(2, b"\nStopping after this minibatch; once more to stop at once.\n")
