# BERT-Large on H200, two hosts, eight GPUs each.
extends = "config_H200x1x8"
max_steps = 20000
