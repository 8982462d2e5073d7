"""What travels between clients and the server: the Tinker SDK's protobuf messages, JSON, and how bodies are compressed."""
