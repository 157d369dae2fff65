"""focusmem: a compact latent memory for frozen vision-language GUI agents."""

__version__ = "0.1.0"
