# BERT-Large on MI250X, one host, eight devices (two a card).
# The published values, unchanged.
