"""Defines stalls: lost packets make a transport wait for a time-out before it sends again.

TCP waits at least 200 ms (Linux's TCP_RTO_MIN; RFC 6298 recommends 1 s), RDMA's reliable connection seconds. The
fastest iteration stays fast, and often the median, too: therefore stalls are counted, see `events`.
"""

# A little below 200 ms, since an operation may begin after the lost packet was sent.
STALL_US = 190_000.0
# The time of a one-second operation varies by 200 ms without a stall: it must also exceed the fastest this many times.
STALL_FACTOR = 2.0
