# Llama-3 70B on eight hosts of eight GPUs: the sizes of Meta-Llama-3-70B's config.json as published on Hugging Face.
extends = "config_llama3_8b"
serves = ["config_llama3_70b_H100x8x8", "config_llama3_70b_H200x8x8"]
num_layers = 80
hidden_size = 8192
num_attention_heads = 64
ffn_hidden_size = 28672
nominal_parameters = 70_000_000_000

# Ours: the layers of a host share its links, four hosts are a pipeline, two of these share their states, and each of
# the two pipelines has 64 sequences of a step.
tensor_parallel_size = 8
sequence_parallel = True
pipeline_parallel_size = 4
