# AICB's check of a collective, in all groups of two pipeline stages at once.
extends = "config_coll_all_reduce"
multi_all_reduce_enable = 1
pipeline_model_parallel = 2
