# perftest between neighbours in a ring of all hosts, on each RDMA device, and on all of them at once.
tools = ["ib_write_bw", "ib_write_lat", "ib_write_bw_ring"]
