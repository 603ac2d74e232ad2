seqlength = 4096
batchsize = 1
datafilename = "openwebtext_llama2_100M.npy"
theoryflops = 312000000000000.0
epochs = 1
flashattn = True
