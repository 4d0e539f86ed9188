"""SASL of a client: the mechanisms, the tokens of OAuth, and what a client may prove itself by."""
