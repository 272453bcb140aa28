"""What the compiled CPU kernels have in common.

Shapes: n members, K labels, H hidden units; Q queries (rows that are encoded), G groups of
P pairs. A table (n, K, H) is also seen as n * K rows of H. Every kernel computes the rows
`start..stop` of its *output*, releases the GIL and shares no output with another call
(`threads.run_rows`). `definition.py` says what each must equal.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Sums may be reordered into vector lanes; NaN and infinity keep their meaning, for the trainer
# must see a divergence. error_model="numpy" because Python's check for a zero divisor is a
# branch, and a branch keeps a loop from becoming vector code.
#
# A loop that writes one array and reads another has two forms, and chooses at run time: where the
# one begins within some 128 bytes behind the other, the plain form runs, even if they do not
# overlap. Both have the same bits unless the loop adds up or calls the C library. So a loop that
# does must only read, or write only what it reads (LLVM then asks whether the arrays overlap, which
# they never do); else its bits depend on where malloc laid them.
VECTORISE = {"reassoc", "contract", "arcp", "nsz"}


@njit(nogil=True, cache=True, fastmath=VECTORISE, error_model="numpy")
def share_and_square(grad_kh, share):
    """Reverse cumulative sum over labels in place (if sharing); the squared norm of the result."""
    labels, hidden = grad_kh.shape
    total = 0.0
    for k in range(labels - 1, -1, -1):
        column_h = grad_kh[k]
        if share and k < labels - 1:
            above_h = grad_kh[k + 1]
            for h in range(hidden):
                column_h[h] += above_h[h]
        squares = np.float32(0.0)
        for h in range(hidden):
            squares += column_h[h] * column_h[h]
        total += squares
    return total
