from config_common import *

train_batch_size = 5
lr = 1e-5
