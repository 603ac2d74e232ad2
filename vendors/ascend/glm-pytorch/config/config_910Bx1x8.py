# GLM-Large on hosts of eight Ascend 910B.
# The published values, unchanged.
