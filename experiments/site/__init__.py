"""The static site: `make site` writes it to build/site."""
