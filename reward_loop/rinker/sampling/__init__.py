"""What samples: Hugging Face models in this process, and what every sampler shares."""
