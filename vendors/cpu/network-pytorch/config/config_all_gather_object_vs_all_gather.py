# What a flag costs by all_gather_object and by all_gather.
extends = "config_all_gather_object_vs_all_gather"
iterations = 500
