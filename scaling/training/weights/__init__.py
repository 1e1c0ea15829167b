"""Weights from and to safetensors files in Hugging Face's names."""
