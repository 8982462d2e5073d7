"""The HTTP server that the official Tinker client, unmodified, and our own use: any Backend behind the Tinker SDK's routes."""
