"""OAUTHBEARER: a client's first message, its token, and the keys that tokens are checked by."""
