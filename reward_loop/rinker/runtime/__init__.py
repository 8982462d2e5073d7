"""Where models are trained and sampled from: this process, Ray actors, vLLM servers."""
