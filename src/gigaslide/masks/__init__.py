"""Masks of tissue as files for other programs: outlines, GeoJSON, pyramidal TIFF, heat maps."""
