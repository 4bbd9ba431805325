"""The entry: `python -m bench [flags] [overrides]`, or `bench`."""

import os
import signal
import sys
from types import FrameType


class Terminated(BaseException):
    """SIGTERM arrived. Like KeyboardInterrupt no Exception, so that nothing on the way takes it for a failed run."""


def main() -> None:
    """Call Hydra.

    Exit code: 0 for valid runs, 1 for others, 2 for settings that cannot be run, 130 and 143 for signals.
    """
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a console script lacks it, and a user's own model lies there
    # Imported here: a console script's module is imported again by every child.
    from bench import callbacks, hydra_glue
    from bench.job import job

    signal.signal(signal.SIGTERM, _terminate)
    hydra_glue.new_moment()
    try:
        hydra_glue.call(job)
    except KeyboardInterrupt:
        sys.exit(callbacks.interrupted(130))
    except Terminated:
        sys.exit(callbacks.interrupted(143))


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise Terminated


if __name__ == "__main__":
    main()
