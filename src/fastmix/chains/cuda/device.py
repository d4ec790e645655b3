"""The CUDA device: whether one can be used, its memory, and the choice of kernels and launches for chains on it."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any, Literal

from fastmix._checks import INSTALL_EXTRA
from fastmix._memory import format_bytes
from fastmix.chains.tuning import (
    BLOCK_THREADS,
    GROUPED_SUMS,
    LADDER_BLOCKS,
    MANY_GROUPS,
    MAX_COLOR_ROUNDS,
    MAX_DEVICE_TABLE_ENTRIES,
    MAX_SET_TABLE_ENTRIES,
    MAX_SUMS,
    MAX_WORDS_PER_THREAD,
    MIN_PACKED_CHAINS,
    SHARED_COLOR_THREADS,
    USABLE_MEMORY,
)
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.model.structure import Structure

__all__ = [
    "CudaKernel",
    "Launch",
    "check_memory",
    "choose_cuda_kernel",
    "choose_group_size",
    "cuda_available",
    "is_simulated",
    "num_multiprocessors",
    "plan_launch",
    "require_cuda",
    "start_kernel",
]

CudaKernel = Literal["packed", "packed-field", "field", "table", "logit"]

_SITES_PER_THREAD: dict[str, int] = {"field": 4}  # sites that a thread updates at once, otherwise one


def cuda_available() -> tuple[bool, str]:
    """Whether kernels can run on a CUDA device here, and the name of the device or the reason why not.

    Examples
    --------
    >>> usable, text = cuda_available()
    >>> isinstance(usable, bool), bool(text)
    (True, True)
    """
    if importlib.util.find_spec("numba_cuda") is None:
        return False, f"the package numba-cuda is not installed: {INSTALL_EXTRA.format(extra='gpu')}"
    try:
        from numba import config, cuda

        if getattr(config, "ENABLE_CUDASIM", False):
            return True, "the CUDA simulator"
        if not cuda.is_available():
            return False, "no CUDA device can be used: the NVIDIA driver, a device or the CUDA libraries are missing"
        name = cuda.get_current_device().name
    except Exception as error:  # whatever a driver may answer: there is no device to use
        reason = " ".join(str(error).split()) or type(error).__name__
        return False, f"no CUDA device can be used: {reason}"
    return True, name.decode() if isinstance(name, bytes) else str(name)


def require_cuda() -> Any:
    """The module ``numba.cuda``.

    Raises
    ------
    UnfitMethodError
        If no device can be used; it says why.
    """
    usable, reason = cuda_available()
    if not usable:
        raise UnfitMethodError(f"backend must be cpu here, got cuda: {reason}")
    from numba import cuda

    return cuda


def start_kernel(kernel: Any, shape: Any, *arguments: Any) -> None:
    """Launch a kernel, without Numba's warning that few blocks do not fill the device."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*will likely result in GPU under-utilization")
        kernel[shape](*arguments)


def is_simulated(cuda: Any) -> bool:
    """Whether kernels run in the simulator, which knows nothing of multiprocessors."""
    return not hasattr(cuda.get_current_device(), "MULTIPROCESSOR_COUNT")


def num_multiprocessors(cuda: Any) -> int:
    """Multiprocessors of the current device; one for the simulator, whose blocks cannot wait for each other."""
    return 1 if is_simulated(cuda) else int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


def check_memory(cuda: Any, required: float) -> None:
    """Refuse what needs more bytes than the device has free, with a :class:`ResourceError` that has both numbers."""
    allowed = float(cuda.current_context().get_memory_info()[0]) * USABLE_MEMORY
    if required > allowed:
        raise ResourceError(
            f"sampling on the GPU needs {format_bytes(required)} of its memory, over the limit of "
            f"{format_bytes(allowed)}; run fewer chains, add them up in groups (group_size), or use the CPU",
            required_bytes=int(required),
            limit_bytes=int(allowed),
        )


def choose_cuda_kernel(
    structure: Structure, num_chains: int, *, num_sets: int = 1, forbidden: bool = False
) -> CudaKernel:
    """The kernel for a structure, a number of chains, one or several sets of parameters, with or without -inf.

    ``packed`` and ``packed-field`` hold 32 chains of a binary variable in a word: the first for at most four neighbors
    (from tables), the second for any number (from log-odds). ``field`` is for few chains of binary variables. ``table``
    reads tables of all patterns of neighbors, for up to 256 states; ``logit`` needs none. Only tables hold factors over
    three or more variables.

    Raises
    ------
    UnfitMethodError
        If factors have three or more variables, or there are several sets and other states than two or forbidden ones,
        and tables of patterns would be too large.

    Examples
    --------
    >>> from fastmix.instances import ising_grid, potts_grid
    >>> grid = ising_grid(4, 4, coupling_max=1.0, seed=0).structure
    >>> choose_cuda_kernel(grid, 1), choose_cuda_kernel(grid, 1000)
    ('field', 'packed')
    >>> choose_cuda_kernel(potts_grid(4, 4, coupling_max=1.0, seed=0).structure, 1000)
    'table'
    """
    entries = structure.pattern_entries
    factors = structure.num_factors > 0
    if structure.num_variables and bool((structure.num_states == 2).all()):
        linear = not forbidden and not factors
        if linear and num_sets == 1 and num_chains < MIN_PACKED_CHAINS:
            return "field"
        if structure.adjacency.max_degree <= 4 and not (factors and num_sets > 1):
            return "packed"
        if linear and (num_sets == 1 or entries > MAX_SET_TABLE_ENTRIES):
            return "packed-field"
    most: float = MAX_SET_TABLE_ENTRIES if num_sets > 1 else MAX_DEVICE_TABLE_ENTRIES
    where = " for every rung" if num_sets > 1 else ""
    fit = entries <= most and structure.num_states.max(initial=1) <= 256
    if not fit and (factors or num_sets > 1):
        what = "a model with factors over three or more variables" if factors else "tempering this model"
        raise UnfitMethodError(
            f"backend must be cpu for {what}, got cuda: the GPU needs tables of all patterns of neighbors, of at most "
            f"256 states and {most:.2g} entries{where}, got {entries:.2g}"
        )
    return "table" if fit else "logit"


def choose_group_size(structure: Structure, num_chains: int, *, forbidden: bool = False) -> int:
    """The number of chains to add up together: 1, or for many chains a divisor of their number that keeps sums small.

    Sums take 16 bytes per entry and chain on the host, and more on the device. Groups have 32 chains, or four where
    states are not binary, or multiples of these.

    Raises
    ------
    ValueError
        If the number of chains has no such divisor.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> grid = ising_grid(16, 16, coupling_max=1.0, seed=0).structure
    >>> choose_group_size(grid, 1000), choose_group_size(grid, 2**20)
    (1, 32)
    """
    entries = int(structure.unary_offsets[-1])
    if entries * num_chains <= GROUPED_SUMS:
        return 1
    unit = 32 if choose_cuda_kernel(structure, num_chains, forbidden=forbidden).startswith("packed") else 4
    units, rest = divmod(num_chains, unit)
    if entries * num_chains <= MAX_SUMS and (rest or units < MANY_GROUPS):
        return 1
    if rest:
        raise ValueError(
            f"num_chains must be a multiple of {unit} for so many chains on the GPU, whose sums are kept in groups, "
            f"got {num_chains}"
        )
    least = max(1, -(-entries * num_chains // (MAX_SUMS * unit)))
    size = next((k for k in range(least, units + 1) if units % k == 0), units)
    return unit * size


@dataclass(frozen=True)
class Launch:
    """The shape of a launch: how chains and sites are spread over threads and blocks."""

    wide: int  # words of 32 chains side by side in a thread; 1 for kernels other than ``packed``
    block_x: int  # threads of a block over chains, or words of chains
    block_y: int  # threads of a block over the sites of a color
    grid_y: int = 1  # blocks that share a color; more than one needs a cooperative launch


def plan_launch(
    kernel: CudaKernel, units: int, largest_color: int, multiprocessors: int, *, several: bool = False
) -> Launch:
    """The launch that keeps all multiprocessors busy, for ``units`` of chains that a thread updates.

    With ``several`` sets of parameters the shape is fixed: words side by side in a thread would read the same tables,
    and every other shape would be compiled anew when the number of sets changes.

    Examples
    --------
    >>> plan_launch("packed", 1 << 15, 128, 132)
    Launch(wide=4, block_x=32, block_y=16, grid_y=1)
    >>> plan_launch("packed", 32, 128, 132)
    Launch(wide=1, block_x=1, block_y=128, grid_y=1)
    >>> plan_launch("field", 1, 1 << 23, 132)
    Launch(wide=1, block_x=1, block_y=256, grid_y=8192)
    >>> plan_launch("packed", 832, 32, 132, several=True)
    Launch(wide=1, block_x=4, block_y=32, grid_y=1)
    """
    tasks = -(-max(1, largest_color) // _SITES_PER_THREAD.get(kernel, 1))
    enough = 1 << (tasks - 1).bit_length()  # the power of two above
    if several:
        block_x, block_y = LADDER_BLOCKS[kernel]
        return Launch(1, block_x, min(block_y, enough))
    share = 1 << (max(1, int(units) // multiprocessors).bit_length() - 1)
    block_x = min(32, share)
    wide = min(MAX_WORDS_PER_THREAD, share // block_x) if kernel == "packed" else 1
    block_y = min(max(1, BLOCK_THREADS[kernel] // block_x), max(32 // block_x, enough))
    blocks = -(-units // (block_x * wide))
    grid_y = 1
    if blocks < multiprocessors and tasks > MAX_COLOR_ROUNDS * block_y:
        block_y = min(block_y, SHARED_COLOR_THREADS // block_x)
        grid_y = -(-tasks // block_y)
    return Launch(wide, block_x, block_y, grid_y)
