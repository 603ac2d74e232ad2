# CPM-1-medium on one host, one device, MI250X to MI355X.
serves = ["config_MI250Xx1x1", "config_MI325Xx1x1", "config_MI350Xx1x1", "config_MI355Xx1x1"]
max_steps = 3000
max_samples = 439126000
