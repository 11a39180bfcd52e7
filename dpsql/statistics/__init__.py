"""How statistics are drawn from their profiles: chosen (quantile, mode), or with noise by what the data allows."""
