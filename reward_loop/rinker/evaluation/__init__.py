"""How good a policy is: while it trains, and afterwards."""
