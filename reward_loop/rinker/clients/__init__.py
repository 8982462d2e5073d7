"""The clients of the Tinker SDK, over a service in this process or one that is reached by HTTP."""
