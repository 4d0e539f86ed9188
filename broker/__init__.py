if __name__ == "broker":  # a second copy of every class, beside those of odradek.broker
    raise ImportError("import odradek.broker: the folder broker would be a second copy of it")
