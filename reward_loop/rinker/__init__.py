"""Rinker: a training API in the names of the Tinker SDK, whose rewards come from the reward loop. See docs/rinker.md."""
