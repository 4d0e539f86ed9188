"""What `scripts/release` builds: packages, a list of their parts, an image, checksums."""
