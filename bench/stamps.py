"""The stamps of a request: the columns of the one array that both processes write.

A stamp is `time.perf_counter_ns()`: on Linux CLOCK_MONOTONIC, the same clock in every process.
Row `index` of the array belongs to request `index`; a stamp never taken is 0.
"""

STAMPS = (
    "intended",  # frontend: the load pattern's planned send time
    "sent",  # frontend: just before the message enters the request queue
    "received",  # backend: the message has left the request queue
    "h2d_start",  # backend: the input copy to the device begins
    "h2d_end",
    "compute_start",  # backend: the forward pass begins
    "compute_end",
    "d2h_start",  # backend: the output copy to the host begins
    "d2h_end",
    "replied",  # backend: just before the message enters the response queue
    "completed",  # frontend: the response has left the response queue
)
(
    INTENDED,
    SENT,
    RECEIVED,
    H2D_START,
    H2D_END,
    COMPUTE_START,
    COMPUTE_END,
    D2H_START,
    D2H_END,
    REPLIED,
    COMPLETED,
) = range(len(STAMPS))
WIDTH = len(STAMPS)
STAMP_BYTES = 8  # int64
