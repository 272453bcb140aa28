"""Numbers from a key."""

from __future__ import annotations

import numpy as np

from cfuica.data.splits import hashes, normals, permutation, uniforms


def _splitmix64(state: int, count: int) -> list[int]:
    """The published generator, in Python's unbounded integers."""
    mask, out = (1 << 64) - 1, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        out.append(z ^ (z >> 31))
    return out


def test_splitmix64_reference_matches_published_vector():
    # From the reference implementation, seed 1234567.
    assert _splitmix64(1234567, 2) == [6457827717110365317, 3203168211198807973]


def test_hashes_are_splitmix64_seeded_by_the_mixed_key():
    for seed in (0, 1, 2**64 - 1):
        base = _splitmix64(seed, 1)[0]
        assert hashes(5, seed).tolist() == _splitmix64(base, 5)


def test_every_word_of_the_key_counts_and_so_does_its_place():
    keys = [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)]
    seen = {tuple(hashes(4, *key).tolist()) for key in keys}
    assert len(seen) == len(keys)


def test_a_longer_draw_begins_like_a_shorter_one():
    assert np.array_equal(hashes(100, 3)[:10], hashes(10, 3))


def test_permutation_is_a_permutation():
    assert np.array_equal(np.sort(permutation(1000, 5)), np.arange(1000))
    assert not np.array_equal(permutation(1000, 5), permutation(1000, 6))


def test_uniforms_and_normals_have_their_moments():
    n = 200_000
    u, z = uniforms(n, 9), normals(n, 9)
    assert u.min() > 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 5 / np.sqrt(12 * n)
    assert abs(z.mean()) < 5 / np.sqrt(n)
    assert abs(z.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 5 * np.sqrt(96 / n)
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 5 / np.sqrt(n)
    assert normals(7, 1).size == 7
    assert normals(0, 1).size == 0
