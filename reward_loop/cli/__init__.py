"""The command line: `reward-loop score | report | rescore | config`."""
