# Llama-3 8B on H200, one host, eight GPUs.
extends = "config_llama3_8b"
