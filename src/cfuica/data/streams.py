"""Opening what behaviours are read from: a file, plain or compressed, or bytes."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from cfuica.errors import DataError

_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class Stream(Protocol):
    """Bytes in order; the empty ones are the end."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes more."""
        ...


Content = Path | bytes | Callable[[], AbstractContextManager[Stream]]
"""A file, plain or compressed; or its bytes; or what opens it, perhaps more than once."""


@contextmanager
def open_content(content: Content, name: str) -> Iterator[Stream]:
    """Open for reading; what cannot be opened or decompressed is a DataError, now or later."""
    try:
        opened, compression = _opened(content)
    except OSError as error:
        raise DataError(
            f"{name} cannot be read ({error.strerror}); give the path of a delimited text file."
        ) from error
    with opened as stream:
        yield _Guarded(stream, name, compression)


class _Guarded:
    """A stream whose errors name the file."""

    def __init__(self, stream: Stream, name: str, compression: str | None) -> None:
        self._stream, self._name, self._compression = stream, name, compression

    def read(self, size: int, /) -> bytes:
        try:
            return self._stream.read(size)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            said = " ".join(str(error).split())
            if self._compression is None:
                raise DataError(f"{self._name} cannot be read ({said}); fetch it again.") from error
            raise DataError(
                f"{self._name} is a damaged {self._compression} file ({said}); fetch or compress "
                f"it again."
            ) from error


def _opened(content: Content) -> tuple[Any, str | None]:
    """(stream, name of its compression), by the first bytes and not by the name of the file."""
    if isinstance(content, bytes):
        return io.BytesIO(content), None
    if not isinstance(content, Path):
        return content(), None
    file = content.open("rb")
    try:
        magic = file.read(4)
        file.seek(0)
    except OSError:
        file.close()
        raise
    kind = next((kind for start, kind in _COMPRESSED.items() if magic.startswith(start)), None)
    if kind is None:
        return file, None
    file.close()
    # Imported here because few files are compressed.
    import pyarrow as pa

    # As bytes, because the name may not be UTF-8.
    return pa.input_stream(pa.OSFile(os.fsencode(content)), compression=kind), kind
