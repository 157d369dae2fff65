"""Sketches of vectors. A sketch is the signs of a rotated vector, packed into 64-bit words; it is 32 times smaller than
the float32 vector.

Two vectors differ in a share of signs that grows with the angle between them, so counting differing bits finds good
candidates fast. The rotation spreads a vector's information evenly over all signs, so any run of words is a sketch as
well. D width, P width padded to a power of two, W words.
"""

import hashlib
from functools import cache

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Vectors = npt.NDArray[np.float32]

_BITS = 64
_SEED = b"focusmem sketch, version 1"  # stored sketches depend on it


def num_words(width: int) -> int:
    return _padded(width) // _BITS


def sketch(vectors_ND: Vectors) -> Words:
    """The sketches of N vectors, shape (N, W)."""
    return np.packbits(_rotated(vectors_ND) > 0, axis=1, bitorder="little").view(np.uint64)


def count_differences(words_NW: Words, query_W: Words) -> npt.NDArray[np.uint16]:
    """For each row, the number of bits that differ from the query's."""
    counts_NW = np.bitwise_count(words_NW ^ query_W)
    totals_N: npt.NDArray[np.uint16] = np.add.reduce(counts_NW, axis=1, dtype=np.uint16)
    return totals_N


def _rotated(vectors_ND: Vectors) -> Vectors:
    """Rotates vectors with random signs and a Hadamard matrix. The matrix is a Kronecker product, so two small
    multiplications are enough.
    """
    num, width = vectors_ND.shape
    signs_P, left_AA, right_BB = _rotation(_padded(width))
    padded_NP = np.zeros((num, len(signs_P)), dtype=np.float32)
    padded_NP[:, :width] = vectors_ND
    padded_NP *= signs_P
    square_NAB = padded_NP.reshape(num, len(left_AA), len(right_BB))
    rotated: Vectors = np.matmul(np.matmul(left_AA, square_NAB), right_BB).reshape(num, len(signs_P))
    return rotated


@cache
def _rotation(size: int) -> tuple[Vectors, Vectors, Vectors]:
    # The signs come from a hash, because the stream of a random generator may change with its library.
    bits_P = np.unpackbits(np.frombuffer(hashlib.shake_256(_SEED).digest(size // 8), dtype=np.uint8))
    exponent = size.bit_length() - 1
    signs_P = bits_P.astype(np.float32) * 2 - 1
    return signs_P, _hadamard(2 ** (exponent // 2)), _hadamard(2 ** (exponent - exponent // 2))


def _hadamard(size: int) -> Vectors:
    matrix = np.ones((1, 1), dtype=np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def _padded(width: int) -> int:
    return int(max(_BITS, 1 << (width - 1).bit_length()))
