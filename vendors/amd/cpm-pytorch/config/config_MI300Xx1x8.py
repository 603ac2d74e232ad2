# CPM-1-medium on one host, eight devices, MI250X to MI355X.
# The published values, unchanged.
serves = ["config_MI250Xx1x8", "config_MI325Xx1x8", "config_MI350Xx1x8", "config_MI355Xx1x8"]
