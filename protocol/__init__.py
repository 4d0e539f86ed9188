if __name__ == "protocol":  # a second copy of every class, beside those of odradek.protocol
    raise ImportError("import odradek.protocol: the folder protocol would be a second copy of it")
