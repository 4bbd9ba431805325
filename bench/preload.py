"""What the fork server imports once, so that a fresh process of a run starts in milliseconds.

The compiler's parts are left out: importing them is what `m_compile_time` measures.
"""

import atexit
import gc

import bench.backend.preflight
import bench.backend.server
import bench.frontend.client
import bench.telemetry.sampler  # noqa: F401
from bench import launcher, orphan, scratch

atexit.register(scratch.remove)  # its children end without these
atexit.register(launcher.end_orphans)

# So that a full collection in a child, maybe in its measured window, need not walk all that torch has made:
# 340,000 objects with torch 2.14, 0.15 s.
gc.collect()
gc.freeze()
orphan.loaded()
