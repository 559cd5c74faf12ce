"""The segmentation network and its losses."""
