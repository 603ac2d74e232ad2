# AICB's check of a collective: 100 operations of each size from 4 KiB to 8 GiB.
extends = "config_coll_all_reduce"
test_comm = "all_gather"
