"""`gigaslide view`: a slide, its mask and the truth in a local web page, and a brush to correct the mask."""
