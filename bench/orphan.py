"""Imported first by the fork server: ends it where its command dies while it still imports torch.

Later it sees that by itself. An import takes seconds, and on a busy machine or a cold disk minutes.
"""

import os
import threading

from bench import scratch

_LOOK_S = 0.5

_parent = os.getppid()
_loaded = threading.Event()


def loaded() -> None:
    """All is imported: the server must have no other thread when it forks."""
    _loaded.set()
    _thread.join()


def _watch() -> None:
    while not _loaded.wait(_LOOK_S):
        if os.getppid() != _parent:
            scratch.remove()
            os._exit(1)


_thread = threading.Thread(target=_watch, name="orphan-watch", daemon=True)
_thread.start()
