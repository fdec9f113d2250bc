"""Training: the Lightning module and data, objectives, and the comparison of attentions."""
