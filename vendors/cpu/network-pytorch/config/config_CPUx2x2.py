# Two CPU hosts, two ranks each, over gloo: seconds on a laptop.
extends = "config_CPUx1x2"
