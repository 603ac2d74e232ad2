"""Settings: cluster_conf.py, test_conf.py and the command line, read and validated."""
