"""The entry: `python -m bench [flags] [overrides]`, or `bench`."""

import os
import sys


def main() -> None:
    """Call Hydra.

    Exit code: 0 for valid runs, 1 for others, 2 for what cannot be begun, 129, 130 and 143 for signals.
    """
    from bench import signals  # here, as all else: a console script's module is imported again by every child

    code = 0
    try:
        signals.install()
        _run()
    except signals.Interrupted as interrupted:
        code = interrupted.code
        _broken("interrupted")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        _broken("broke off", ended.code if isinstance(ended.code, str) else "")
    signals.ending(code)
    sys.exit(code)


def _run() -> None:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a console script lacks it, and a user's own model lies there
    from bench import hydra_glue
    from bench.job import job

    hydra_glue.new_moment()
    hydra_glue.call(job)


def _broken(how: str, why: str = "") -> None:
    """Tell of the sweep that did not come to its end, if there is one."""
    if "bench.callbacks" in sys.modules:
        from bench import callbacks

        callbacks.broken(how, why)
    elif how == "interrupted":
        from bench.invocation import Invocation

        print(
            f"bench: interrupted before the first run. To start again:\n    {Invocation.current().again()}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
