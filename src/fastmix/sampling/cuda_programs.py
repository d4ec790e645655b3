"""All CUDA kernels under one name, so that they are imported together, and only when needed."""

from __future__ import annotations

from fastmix.sampling.cuda_field_kernels import packed_field_kernel, site_field_kernel
from fastmix.sampling.cuda_kernels import packed_kernel
from fastmix.sampling.cuda_state_kernels import logit_kernel, table_kernel
from fastmix.sampling.cuda_support_kernels import (
    count_packed_pairs,
    count_state_pairs,
    empty_sums,
)

__all__ = [
    "count_packed_pairs",
    "count_state_pairs",
    "empty_sums",
    "logit_kernel",
    "packed_field_kernel",
    "packed_kernel",
    "site_field_kernel",
    "table_kernel",
]
