"""What does the work behind the clients, in the process that it is built in."""
