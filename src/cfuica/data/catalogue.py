"""What is known of each public data set: where it is offered, and how to recognise it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MOVIELENS = "https://files.grouplens.org/datasets/movielens"


@dataclass(frozen=True)
class Release:
    """One release of MovieLens."""

    name: str
    ratings: str
    """Name of the file of ratings."""
    ratings_mb: float | None = None
    """Size of that file in millions of bytes, about; None where it changes."""
    sha256: str | None = None
    """SHA-256 of the archive; None where the release changes over time."""
    folder: str | None = None
    """Folder inside the archive, where it is not called by the name."""

    @property
    def archive(self) -> str:
        """File name of the archive."""
        return f"{self.name}.zip"

    @property
    def folders(self) -> tuple[str, ...]:
        """What people call the folder that holds it."""
        return (self.name,) if self.folder is None else (self.name, self.folder)


# Only the checksum of ml-1m was computed here, from a copy of the archive. The others were not:
# they are what several unrelated public repositories give for these archives (tensorflow/datasets
# for 100k, 20m and 25m; for 10m and 32m projects that checked it against GroupLens's MD5, or
# against the checksums inside). Where one proves wrong, None makes the first one seen count.
RELEASES: Mapping[str, Release] = {
    release.name: release
    for release in (
        Release(
            "ml-100k",
            "u.data",
            1.98,
            "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
        ),
        Release(
            "ml-1m",
            "ratings.dat",
            24.6,
            "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        ),
        Release(
            "ml-10m",
            "ratings.dat",
            265.0,
            "813c411ccb6122564edfe752e7f80c4dcc5aa25fa94c93622f6877a7ba252862",
            folder="ml-10M100K",
        ),
        Release(
            "ml-20m",
            "ratings.csv",
            533.0,
            "96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
        ),
        Release(
            "ml-25m",
            "ratings.csv",
            678.0,
            "8b21cfb7eb1706b4ec0aac894368d90acf26ebdfb6aced3ebd4ad5bd1eb9c6aa",
        ),
        Release(
            "ml-32m",
            "ratings.csv",
            877.0,
            "e4a68655d7386b8f95f2f2424b2ff975dfdd15ffd59e0d864a14dca43e99d6ee",
        ),
        Release("ml-latest-small", "ratings.csv"),
    )
}
