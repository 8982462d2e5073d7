"""Where synchronous reward functions run: off the event loop, and where one that hangs costs only itself."""
