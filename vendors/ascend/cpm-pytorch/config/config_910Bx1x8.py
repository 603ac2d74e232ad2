# CPM-1-medium on hosts of eight Ascend 910B.
# The published values, unchanged.
