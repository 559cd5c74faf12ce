"""From the grey values of a slide to what the network sees: stain over glass, whatever its strength.

Per channel, the optical density over the slide's own glass, `d = log((glass + 1) / (rgb + 1))`, is the sum of the
densities of all that the light went through (Beer and Lambert; Ruifrok and Johnston 2001). Three planes are made of it:

    mean density          stain, but also ink, shadow, dust, the edge of a bubble
    green minus red       0 for everything grey, above 0 for eosin, haematoxylin and DAB, below for blue and green ink
    green minus blue      0 for everything grey, above 0 for eosin and haematoxylin, below for DAB

The last two see tissue through grey ink, and no grey artefact at all; a network of 4492 parameters would otherwise have
to spend its filters on that. Each plane goes through `x / (|x| + 0.02)`: pale tissue of density 0.03 becomes 0.6 and
dark tissue of 1 becomes 0.98, so one threshold finds the edge of both. Glass is 0 in all planes, and so is the zero
padding of a convolution: what lies beyond the image is glass, not a black frame.
"""

import numpy as np
import tensorflow as tf

_HALF_AT = 0.02  # density that becomes one half; a few times the sensor's noise
# Rows: red, green, blue. Columns: mean density, green minus red, green minus blue.
_PLANES = np.array([[1 / 3, -1, 0], [1 / 3, 1, 1], [1 / 3, 0, -1]])
# Grey matters least: what goes wrong on slides is mostly grey.
_WEIGHTS = np.array([0.3, 1, 1])


def network_input(image: tf.Tensor, glass: tf.Tensor, dtype: str = "float32") -> tf.Tensor:
    """Return what the network takes: (1, y, x, 3) of `dtype`, each value in -1..1, 0 on glass.

    Args:
        image: (y, x, 3) uint8, RGB.
        glass: (3,) uint8, the colour of the slide's empty glass.
        dtype: what to compute in.
    """
    density = tf.math.log((tf.cast(glass, dtype) + 1) / (tf.cast(image, dtype) + 1))[tf.newaxis]
    planes = tf.nn.conv2d(density, tf.constant(_PLANES[np.newaxis, np.newaxis], dtype), 1, "VALID")
    return planes / (tf.abs(planes) + _HALF_AT) * tf.constant(_WEIGHTS, dtype)
