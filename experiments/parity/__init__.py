"""Models here against the same models of Hugging Face's transformers (`make parity`)."""
