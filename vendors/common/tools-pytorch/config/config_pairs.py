# perftest between neighbours in a ring of all hosts, on each RDMA device.
tools = ["ib_write_bw", "ib_write_lat"]
