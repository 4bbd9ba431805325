"""What the fork server imports once, so that a fresh process of a run starts in milliseconds.

The compiler's parts are left out: importing them is what `m_compile_time` measures.
"""

import bench.backend.preflight
import bench.backend.server
import bench.frontend.client
import bench.telemetry.sampler  # noqa: F401
