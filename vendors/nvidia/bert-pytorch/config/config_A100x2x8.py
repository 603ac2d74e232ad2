# BERT-Large on A100, two hosts, eight GPUs each.
max_steps = 20000
