# BERT-Large on A100, one host, eight GPUs.
# The published values, unchanged.
