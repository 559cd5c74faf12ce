"""From the grey values of a slide to what the network sees: stain over glass, faint stain made visible.

Per channel, `absorbed = 1 - rgb / glass` is the share of the light that the slide takes away: 0 on the empty glass of
every slide (slides/glass.py), so that the zero padding of a convolution is glass and not a black frame. Pale tissue
absorbs 0.03 and dark ink 0.9; `asinh(20 absorbed) / 3` is linear up to about 0.05, where the sensor's noise is, and
logarithmic above, so that a few filters can tell both from glass: 0.03 becomes 0.19, 0.9 becomes 0.96.
(asinh as a stretch of faint signals: Lupton et al. 1999, arXiv astro-ph/9903081.)
"""

import tensorflow as tf

_GAIN = 20.0
_SCALE = 1 / 3


def network_input(image: tf.Tensor, glass: tf.Tensor, dtype: str = "float32") -> tf.Tensor:
    """Return what the network takes: (1, y, x, 3) of `dtype`, 0 on glass and about 1 on black.

    Args:
        image: (y, x, 3) uint8, RGB.
        glass: (3,) uint8, the colour of the slide's empty glass.
        dtype: what to compute in.
    """
    absorbed = 1 - tf.cast(image, dtype) / tf.cast(glass, dtype)
    return tf.asinh(_GAIN * absorbed)[tf.newaxis] * tf.cast(_SCALE, dtype)
