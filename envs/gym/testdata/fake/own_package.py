import gymnasium

gymnasium.register("Own-v0", lambda **kwargs: gymnasium.Fake(value=7.0, **kwargs))
