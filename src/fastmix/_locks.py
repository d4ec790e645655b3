"""Locks on open files, which tell the processes of one machine that a file is in use."""

from __future__ import annotations

__all__ = ["lock_file"]


def lock_file(descriptor: int) -> bool | None:
    """Whether this process now holds the lock of an open file; None where nothing can be locked.

    Not every system has such locks (Windows has not), and not every file system supports them. A lock ends with the
    process that holds it, however that ends. It keeps nobody from writing who does not ask for it.

    Parameters
    ----------
    descriptor : int
        Of a file that is open for writing.
    """
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
