"""The analytical model: from a workload and a cluster's bandwidths to the time of one iteration."""
