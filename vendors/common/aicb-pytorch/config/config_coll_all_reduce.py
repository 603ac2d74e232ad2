# AICB's check of a collective: 100 operations of each size from 4 KiB to 8 GiB.
dialect = "aicb"
frame = "collective_test"
test_comm = "all_reduce"
begin_size = 4096
end_size = 8 << 30
iter_num = 100
epoch_num = 1
