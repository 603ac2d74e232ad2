# BERT-Large on A100, two hosts, eight GPUs each.
# The published values, unchanged.
