"""Alignments of proteins, RNA and DNA: reading them, weights of similar rows, contacts, and mutants.

A Potts model of an alignment is learnt by :func:`fastmix.learn`; what is here goes before and after it.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_float_array, check_choice, check_count, check_flag, check_positive, describe
from fastmix._memory import check_memory
from fastmix.errors import FormatError, ModelError
from fastmix.io.files import PathLike, decode_text, display_name, read_bytes
from fastmix.learning.data import read_data
from fastmix.learning.dataset import MISSING, Dataset
from fastmix.learning.tuning import BYTES_PER_CELL, CHUNK_NUMBERS
from fastmix.model import MarkovRandomField, check_model

__all__ = ["contact_scores", "mutant_energies", "rank_contacts", "read_fasta", "sequence_weights"]

#: Letters of alignments, the gap first.
ALPHABETS = {"protein": "-ACDEFGHIKLMNPQRSTVWY", "rna": "-ACGU", "dna": "-ACGT"}


def read_fasta(
    path: PathLike,
    *,
    alphabet: Literal["protein", "rna", "dna"] = "protein",
    gaps: Literal["state", "missing"] = "state",
    max_bytes: float | None = None,
) -> Dataset:
    r"""The rows of an alignment in a FASTA (or A2M) file, a column for every position, for :func:`fastmix.learn`.

    Positions are numbered from 1, as names of variables; states are the letters. Insertions of A2M files, lower-case
    letters and dots, are left out. Letters that are none of the alphabet (X, B, N, ..) are missing values.

    Parameters
    ----------
    path : path
        ``-`` is the standard input; gzip and xz are read as they are.
    alphabet : {"protein", "rna", "dna"}
        RNA and DNA may have T for U and U for T.
    gaps : {"state", "missing"}
        Whether a gap, ``-``, is a state of its own, the first, or a missing value.
    max_bytes : float, optional
        Limit on the size of the content; as for model files.

    Raises
    ------
    FormatError
        If there is no sequence, text before the first header, or a row of another length; with ``path:line``.

    Examples
    --------
    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "family.fasta")
    ...     with open(path, "w") as file:
    ...         _ = file.write(">one\nACu-\n>two\nAC\nG\n")
    ...     data = read_fasta(path, alphabet="rna")
    >>> data.states.tolist(), data.state_names[0]
    ([[1, 2, 0], [1, 2, 3]], ('-', 'A', 'C', 'G', 'U'))
    """
    check_choice("alphabet", alphabet, tuple(ALPHABETS))
    check_choice("gaps", gaps, ("state", "missing"))
    name = display_name(path)
    sequences, lines = _sequences(decode_text(read_bytes(path, max_bytes), name), name)
    length = len(sequences[0])
    for sequence, line in zip(sequences, lines, strict=True):
        if len(sequence) != length:
            raise FormatError(f"{name}:{line}: every sequence must have {length} positions, got {len(sequence)}")
    if not length:
        raise FormatError(f"{name}:{lines[0]}: a sequence must have a position")
    check_memory(BYTES_PER_CELL * length * len(sequences), f"the alignment {name}", "leave out sequences")
    letters = ALPHABETS[alphabet] if gaps == "state" else ALPHABETS[alphabet][1:]
    states = _codes(sequences, letters, alphabet)
    return Dataset(
        states=states,
        weights=np.full(len(states), 1.0 / len(states)),
        num_states=np.full(length, len(letters)),
        num_rows=len(states),
        variable_names=tuple(str(k + 1) for k in range(length)),
        state_names=(tuple(letters),) * length,
    )


def sequence_weights(data: Any, *, identity: float = 0.8) -> FloatArray:
    """Weights (rows,) of the rows of an alignment: one over the number of rows that are as good as the same.

    These agree in at least a share ``identity`` of the positions that both have a value at; a row is one of them. The
    sum of the weights is the effective number of sequences [1]_. Cost: all pairs of rows.

    Parameters
    ----------
    data
        As for :func:`fastmix.learn`.
    identity : float
        From above 0 to 1.

    References
    ----------
    .. [1] F. Morcos et al., "Direct-coupling analysis of residue coevolution captures native contacts across many
       protein families", PNAS 108, 2011.

    Examples
    --------
    >>> sequence_weights([[0, 1, 1, 0, 1], [0, 1, 1, 0, 1], [1, 0, 0, 1, 0]]).tolist()
    [0.5, 0.5, 1.0]
    """
    identity = check_positive("identity", identity, most=1.0)
    states = read_data(data).states
    count, n = states.shape
    rows = max(1, CHUNK_NUMBERS // max(1, count))
    similar = np.zeros(count)
    numbers = range(int(states.max(initial=0)) + 1)
    for first in range(0, count, rows):
        part = states[first : first + rows]
        agreeing = np.zeros((len(part), count), dtype=np.float32)
        for state in numbers:
            agreeing += (part == state).astype(np.float32) @ (states == state).T.astype(np.float32)
        compared = (part != MISSING).astype(np.float32) @ (states != MISSING).T.astype(np.float32)
        similar[first : first + rows] = (agreeing >= identity * compared - 1e-6 * n).sum(axis=1)
    return 1.0 / similar


def contact_scores(model: MarkovRandomField, *, gap: str | None = "-", apc: bool = True) -> FloatArray:
    """Scores (n, n) of all pairs of positions of a Potts model: sizes of their tables, corrected for their averages.

    Tables are brought to the gauge in which they add up to 0 over every index, without the states named ``gap``; their
    Frobenius norms are the scores. With ``apc`` the product of the averages of row and column over that of all pairs
    is subtracted, which removes what conservation of single positions makes [1]_. Zero on the diagonal.

    Parameters
    ----------
    model : MarkovRandomField
        With tables of pairs only.
    gap : str or None
        The name of the state that stands for a gap; None counts all states.
    apc : bool

    Raises
    ------
    ModelError
        If the model has larger factors or forbidden states.

    References
    ----------
    .. [1] S. D. Dunn, L. M. Wahl and G. B. Gloor, "Mutual information without the influence of phylogeny or entropy
       dramatically improves residue contact prediction", Bioinformatics 24, 2008; M. Ekeberg et al., "Improved contact
       prediction in proteins: using pseudolikelihoods to infer Potts models", Physical Review E 87, 2013.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=[1.0, 0.5])
    >>> contact_scores(model, apc=False).round(3).tolist()
    [[0.0, 2.0, 0.0], [2.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    _check_potts(model)
    apc = check_flag("apc", apc)
    if gap is not None and not isinstance(gap, str):
        raise TypeError(f"gap must be the name of a state or None, got {describe(gap)}")
    n = model.num_variables
    scores = np.zeros((n, n))
    names = model.names_of_states()
    kept = [np.array([name != gap for name in own]) for own in names]
    for i, j in model.edges.tolist():
        table = model.table(i, j)
        table = table - table.mean(axis=0) - table.mean(axis=1)[:, None] + table.mean()
        scores[i, j] = scores[j, i] = np.linalg.norm(table[np.ix_(kept[i], kept[j])])
    if apc and n > 1 and scores.any():
        means = scores.sum(axis=1) / (n - 1)
        scores -= np.outer(means, means) / means.mean()
        np.fill_diagonal(scores, 0.0)
    return scores


def rank_contacts(scores: ArrayLike, *, separation: int = 5, num_contacts: int | None = None) -> IntArray:
    """Pairs (m, 2) of positions, from 0, that are at least ``separation`` apart, the largest scores first.

    Parameters
    ----------
    scores : float array (n, n)
        As from :func:`contact_scores`.
    separation : int
        Positions that are closer in the sequence are left out: they are in contact anyway.
    num_contacts : int, optional
        How many; all by default. As many as there are positions is customary.

    Examples
    --------
    >>> rank_contacts([[0, 1, 3], [1, 0, 2], [3, 2, 0]], separation=1).tolist()
    [[0, 2], [1, 2], [0, 1]]
    """
    values = as_float_array("scores", scores)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"scores must be a square array, got shape {values.shape}")
    separation = check_count("separation", separation, least=1)
    i, j = np.triu_indices(len(values), k=min(separation, len(values)))
    order = np.argsort(-values[i, j], kind="stable")
    if num_contacts is not None:
        order = order[: check_count("num_contacts", num_contacts, least=0)]
    return np.stack([i[order], j[order]], axis=1)


def mutant_energies(model: MarkovRandomField, sequence: ArrayLike) -> list[FloatArray]:
    """By how much the log-probability of a sequence changes by every single mutation: a vector per position.

    The entry of the state that the sequence has is 0; negative ones are less probable, so predicted to be harmful.
    Several mutations at once are differences of ``model.log_weight``.

    Parameters
    ----------
    model : MarkovRandomField
        With tables of pairs only.
    sequence : array_like (n,) of whole numbers

    Raises
    ------
    ModelError
        If the sequence has other positions or states than the model.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=1.0)
    >>> [own.tolist() for own in mutant_energies(model, [0, 0])]
    [[0.0, -2.0], [0.0, -2.0]]
    """
    _check_potts(model)
    states = read_data([sequence], model=model, name="sequence", missing=None).states[0].astype(np.int64)
    offsets = model.unary_offsets
    fields = model.log_unary.copy()
    for i, j in model.edges.tolist():
        table = model.table(i, j)
        fields[offsets[i] : offsets[i + 1]] += table[:, states[j]]
        fields[offsets[j] : offsets[j + 1]] += table[states[i]]
    own = fields[offsets[:-1] + states]
    return np.split(fields - np.repeat(own, model.num_states), offsets[1:-1])


def _check_potts(model: MarkovRandomField) -> None:
    """A :class:`ModelError` for models with more than finite tables of pairs."""
    check_model(model)
    if model.num_factors or model.has_forbidden:
        raise ModelError("model must have tables of pairs only, without forbidden states")


def _sequences(text: str, name: str) -> tuple[list[str], list[int]]:
    """Sequences without insertions, and the lines of their headers."""
    found: list[list[str]] = []
    lines: list[int] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.strip()
        if words.startswith(">"):
            found.append([])
            lines.append(number)
        elif words and not words.startswith(";"):
            if not found:
                raise FormatError(f"{name}:{number}: a sequence must follow a header that begins with >")
            found[-1].append("".join(letter for letter in words if letter.isupper() or letter in "-*"))
    if not found:
        raise FormatError(f"{name}: there is no sequence")
    return ["".join(parts) for parts in found], lines


def _codes(sequences: list[str], letters: str, alphabet: str) -> NDArray[np.int16]:
    """Numbers of the letters, -1 for those that the alphabet has not."""
    table = np.full(256, MISSING, dtype=np.int16)
    for number, letter in enumerate(letters):
        table[ord(letter)] = number
    if alphabet in ("rna", "dna"):
        table[ord("T")] = table[ord("U")] = max(table[ord("T")], table[ord("U")])
    joined = "".join(sequences).encode("latin-1", "replace")
    return table[np.frombuffer(joined, dtype=np.uint8)].reshape(len(sequences), -1)
