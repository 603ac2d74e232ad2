# Tools of others on each host by itself, as far as they are installed.
tools = ["ascend-dmi", "ib_write_bw_loopback", "ib_write_lat_loopback"]
