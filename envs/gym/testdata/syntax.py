def make_env(:
    pass
