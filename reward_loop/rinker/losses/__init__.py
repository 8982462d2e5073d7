"""The built-in losses: token by token, summed, and what is measured beside them."""
