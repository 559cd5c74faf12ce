"""From slide files and annotations to prepared stores: the only part of gigaslide that meets either."""
