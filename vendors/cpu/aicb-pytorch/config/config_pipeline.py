# A tiny GPT over two pipeline stages as Megatron-core runs it, issued as a job issues it: 2 ranks or 4.
dialect = "framework"
frame = "Megatron"
hidden_size = 256
num_layers = 4
num_attention_heads = 4
seq_length = 128
vocab_size = 1024
pipeline_model_parallel = 2
num_microbatches = 4
epoch_num = 5
timing = "stream"
