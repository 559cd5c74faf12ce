"""Segmentation losses as additive statistics of the pixels, and a function of their totals.

Soft Dice is a property of the whole image, not a mean of tile values: with S = (sum p y, sum p, sum y, ...) summed
over all valid pixels, the loss is f(S). Sums of parts add up to the sum of the whole, so an image may be visited in
any pieces. Totals are float64. Soft Dice: Milletari et al. 2016, arXiv 1606.04797 (without squares in the denominator).
"""

from typing import NamedTuple

import tensorflow as tf

from gigaslide.classes import INVALID, TISSUE

# Added to both sides of the Dice fraction, in pixels: the Dice of nothing against nothing is 1, not 0 / 0.
_SMOOTHING_PX = 1.0


class Statistics(NamedTuple):
    """Sums over the valid pixels, each a float64 scalar: they add."""

    overlap: tf.Tensor  # sum p y
    predicted: tf.Tensor  # sum p
    tissue: tf.Tensor  # sum y
    cross_entropy: tf.Tensor  # sum of -log p(right class), nats
    valid: tf.Tensor  # number of valid pixels


def statistics(logits: tf.Tensor, mask: tf.Tensor) -> Statistics:
    """Sum up what the losses need; differentiable in `logits`.

    Args:
        logits: (y, x) or (y, x, pixel of a block), any floating type; computed in float32 at least.
        mask: as `logits`, uint8: 0 glass, 1 tissue, 255 invalid. Invalid pixels are in no sum.
    """
    if logits.dtype == tf.bfloat16:
        logits = tf.cast(logits, tf.float32)
    valid = tf.cast(mask != INVALID, logits.dtype)
    tissue = tf.cast(mask == TISSUE, logits.dtype)
    probability = tf.sigmoid(logits) * valid
    cross_entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels=tissue, logits=logits) * valid
    return Statistics(*(_total(x) for x in (probability * tissue, probability, tissue, cross_entropy, valid)))


def soft_dice(totals: Statistics) -> tf.Tensor:
    """Return 2 sum(p y) / (sum p + sum y), a float64 scalar in 0..1."""
    return (2 * totals.overlap + _SMOOTHING_PX) / (totals.predicted + totals.tissue + _SMOOTHING_PX)


def mean_cross_entropy(totals: Statistics) -> tf.Tensor:
    """Return the cross entropy per valid pixel in nats, a float64 scalar; 0 when there is no valid pixel."""
    return totals.cross_entropy / tf.maximum(totals.valid, 1.0)


def loss(totals: Statistics, dice_weight: float, cross_entropy_weight: float) -> tf.Tensor:
    """Return `dice_weight * (1 - soft Dice) + cross_entropy_weight * mean cross entropy`, a float64 scalar."""
    return dice_weight * (1 - soft_dice(totals)) + cross_entropy_weight * mean_cross_entropy(totals)


def logit_gradient(logits: tf.Tensor, mask: tf.Tensor, slopes: Statistics) -> tf.Tensor:
    """Return the derivative of the loss by each logit, in the logits' type.

    It is written out because automatic differentiation of `statistics` goes over the pixels three times as often.

    Args:
        logits: as for `statistics`.
        mask: as for `statistics`.
        slopes: derivative of the loss by each total, float64 scalars.
    """
    kind = tf.float32 if logits.dtype == tf.bfloat16 else logits.dtype
    overlap, predicted, cross_entropy = (
        tf.cast(slope, kind) for slope in (slopes.overlap, slopes.predicted, slopes.cross_entropy)
    )
    valid = tf.cast(mask != INVALID, kind)
    tissue = tf.cast(mask == TISSUE, kind)
    probability = tf.sigmoid(tf.cast(logits, kind))
    # d sigmoid = p (1 - p), d cross entropy = p - y.
    gradient = probability * (1 - probability) * (overlap * tissue + predicted) + (probability - tissue) * cross_entropy
    return tf.cast(gradient * valid, logits.dtype)


def slopes(totals: Statistics, dice_weight: float, cross_entropy_weight: float) -> tuple[tf.Tensor, Statistics]:
    """Return the loss and its derivative by each total; `tissue` and `valid` do not depend on the network."""
    with tf.GradientTape() as tape:
        tape.watch(totals)
        value = loss(totals, dice_weight, cross_entropy_weight)
    found = tape.gradient(value, totals, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return value, found


def _total(x: tf.Tensor) -> tf.Tensor:
    # A row is summed in float32 (a tree of at most 2^16 terms), rows are added in float64.
    return tf.reduce_sum(tf.cast(tf.reduce_sum(x, axis=list(range(1, len(x.shape)))), tf.float64))
