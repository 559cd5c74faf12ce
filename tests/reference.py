"""The whole-image step in a few lines: every plan has to give what this gives."""

import numpy as np
import tensorflow as tf

from gigaslide.classes import INVALID
from gigaslide.network import losses
from gigaslide.network.pixels import network_input


def whole_image_step(model, area, total_stride, dice_weight, cross_entropy_weight):
    """Return loss, logits (y, x) and the gradient of every weight: Keras' own layers, TensorFlow's own tape."""
    height, width = area.shape
    padded = tuple(-(-size // step) * step for size, step in zip(area.shape, total_stride, strict=True))
    planes = network_input(area.image, area.density_table, model.inputs[0].dtype, padded)
    mask = np.pad(area.mask, [(0, padded[0] - height), (0, padded[1] - width)], constant_values=INVALID)
    with tf.GradientTape() as tape:
        logits = model(planes, training=True)[0, :, :, 0]
        loss = losses.loss(losses.statistics(logits, mask), dice_weight, cross_entropy_weight)
    gradients = [gradient.numpy() for gradient in tape.gradient(loss, model.trainable_variables)]
    return float(loss), logits.numpy()[:height, :width], gradients
