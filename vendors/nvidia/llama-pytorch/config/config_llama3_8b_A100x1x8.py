# Llama-3 8B on A100, one host, eight GPUs.
extends = "config_llama3_8b"
