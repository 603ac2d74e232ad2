# What a flag costs by all_gather_object and by all_reduce.
extends = "config_all_gather_object_vs_all_reduce"
iterations = 500
