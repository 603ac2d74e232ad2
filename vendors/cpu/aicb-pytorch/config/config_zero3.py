# DeepSpeed ZeRO 3 on a tiny LLaMA: any number of ranks.
dialect = "aicb"
frame = "DeepSpeed"
stage = 3
hidden_size = 256
num_layers = 4
num_attention_heads = 4
seq_length = 128
ffn_hidden_size = 688
vocab_size = 1024
param_persistence_threshold = 1000
epoch_num = 5
