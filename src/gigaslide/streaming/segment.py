"""A segment of the network as TensorFlow functions of one tile: forward, statistics of the loss, backward."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gigaslide.classes import INVALID
from gigaslide.network import losses
from gigaslide.network.graph import IMAGE, UPSAMPLING, Graph, Op
from gigaslide.network.losses import Statistics
from gigaslide.streaming import ops
from gigaslide.streaming.buffers import in_place
from gigaslide.streaming.plan import Segment
from gigaslide.streaming.tiles import Tile

Array = NDArray[Any]


class _TileFunction:
    """A function of a tile, traced at most twice: for tiles that touch an edge of the image, and for the others."""

    def __init__(self, body: Callable[..., Any], signature: list[Any]) -> None:
        self._body, self._signature = body, signature
        self._lock = threading.Lock()
        self.traced: dict[bool, Any] = {}

    def __call__(self, tile: Tile, inputs: list[Array], *others: Array) -> Any:
        with self._lock:
            if not self.traced:
                # Both at once: which kind comes first depends on the area, and a later tile must not wait.
                self.traced = {touches_edge: self._trace(touches_edge) for touches_edge in (False, True)}
        return self.traced[tile.touches_edge]([in_place(x) for x in inputs], tile.table, *others)

    def _trace(self, touches_edge: bool) -> Any:
        function = tf.function(
            lambda inputs, table, *others: self._body(inputs, table, touches_edge, *others),
            input_signature=self._signature,
            autograph=False,
        )
        return function.get_concrete_function()


def weights_of(segment: Segment, layers: Mapping[str, Any], model: keras.Model) -> tuple[int, ...]:
    """Return the indices, in `model.trainable_variables`, of the weights that a segment uses."""
    used = {id(w) for name in segment.ops for w in getattr(layers[name], "trainable_variables", ())}
    return tuple(index for index, variable in enumerate(model.trainable_variables) if id(variable) in used)


class SegmentFunctions:
    """What is computed of one tile. Inputs and gradients are arrays of a `BufferPool`: they are read in place.

    `weights` are the indices, in `model.trainable_variables`, of the weights that the segment uses.
    """

    def __init__(
        self,
        graph: Graph,
        segment: Segment,
        layers: Mapping[str, Any],
        model: keras.Model,
        precision: str | None = None,
    ) -> None:
        self._graph, self._segment, self._layers = graph, segment, layers
        self.weights = weights_of(segment, layers, model)
        self._variables = [model.trainable_variables[index] for index in self.weights]
        self._blocks = _block_tail(graph, segment)

        dtype = model.inputs[0].dtype
        self._precision = tf.as_dtype(precision or dtype)
        self._dtype = tf.as_dtype(dtype)
        inputs = [tf.TensorSpec((1, None, None, graph.by_name[name].channels), dtype) for name in segment.inputs]
        table = tf.TensorSpec((None, 2, 4), tf.int32)
        output = tf.TensorSpec((1, None, None, graph.by_name[segment.output].channels), dtype)
        labels = tf.TensorSpec((None, None, self._blocks[0] * self._blocks[1]), tf.uint8)
        slopes = tf.TensorSpec((len(Statistics._fields),), tf.float64)

        def function(body: Any, *signature: Any) -> "_TileFunction":
            return _TileFunction(body, [inputs, table, *signature])

        self._forward_function = function(self._forward)
        self._probability_function = function(self._probability)
        self._backward_function = function(self._backward, output)
        self._statistics_function = function(self._statistics, labels)
        self._loss_backward_function = function(self._loss_backward, labels, slopes)

    @property
    def traces(self) -> int:
        """How many TensorFlow functions were traced so far."""
        return sum(len(value.traced) for value in vars(self).values() if isinstance(value, _TileFunction))

    def forward(self, tile: Tile, inputs: list[Array]) -> Array:
        """Return the window that the tile owns, (1, y, x, channel)."""
        found = np.asarray(self._forward_function(tile, inputs))
        # What changes nothing hands on its input, and that is a buffer: used again before the map is written.
        return found.copy() if any(np.may_share_memory(found, x) for x in inputs) else found

    def probability(self, tile: Tile, inputs: list[Array]) -> NDArray[Any]:
        """Return the probability of tissue in the window that the tile owns, (y, x)."""
        return np.asarray(self._probability_function(tile, inputs))[0, :, :, 0]

    def backward(self, tile: Tile, inputs: list[Array], gradient: Array) -> tuple[list[Array], list[Array]]:
        """Return the gradients of the segment's weights, and of its inputs except the image, each for its window."""
        return _arrays(self._backward_function(tile, inputs, in_place(gradient)))

    def statistics(self, tile: Tile, inputs: list[Array], labels: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return the tile's part of `losses.Statistics`; `labels` (y, x)."""
        labels = self._in_blocks(labels)
        return np.asarray(self._statistics_function(tile, inputs, labels))

    def loss_backward(
        self, slopes: NDArray[np.float64], tile: Tile, inputs: list[Array], labels: NDArray[np.uint8]
    ) -> tuple[list[Array], list[Array]]:
        """Return as `backward`, from the derivative of the loss by each of its totals."""
        labels = self._in_blocks(labels)
        return _arrays(self._loss_backward_function(tile, inputs, labels, slopes))

    def _forward(self, inputs: list[tf.Tensor], table: tf.Tensor, touches_edge: bool) -> tf.Tensor:
        return tf.cast(self._run(inputs, table, touches_edge), self._dtype)

    def _probability(self, inputs: list[tf.Tensor], table: tf.Tensor, touches_edge: bool) -> tf.Tensor:
        return tf.sigmoid(tf.cast(self._run(inputs, table, touches_edge), self._dtype))

    def _backward(self, inputs: list[tf.Tensor], table: tf.Tensor, touches_edge: bool, gradient: tf.Tensor) -> Any:
        sources = self._sources(inputs)
        with tf.GradientTape() as tape:
            tape.watch(sources)
            output = self._run(inputs, table, touches_edge)
        return self._pull_back(tape, output, sources, gradient)

    def _statistics(
        self, inputs: list[tf.Tensor], table: tf.Tensor, touches_edge: bool, labels: tf.Tensor
    ) -> tf.Tensor:
        logits = self._run(inputs, table, touches_edge, as_blocks=True)
        return tf.stack(losses.statistics(logits[0], labels))

    def _loss_backward(
        self, inputs: list[tf.Tensor], table: tf.Tensor, touches_edge: bool, labels: tf.Tensor, slopes: tf.Tensor
    ) -> Any:
        sources = self._sources(inputs)
        with tf.GradientTape() as tape:
            tape.watch(sources)
            logits = self._run(inputs, table, touches_edge, as_blocks=True)
        gradient = losses.logit_gradient(logits[0], labels, Statistics(*tf.unstack(slopes)))
        return self._pull_back(tape, logits, sources, gradient[tf.newaxis])

    def _sources(self, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        return [x for name, x in zip(self._segment.inputs, inputs, strict=True) if name != IMAGE]

    def _pull_back(
        self, tape: tf.GradientTape, output: tf.Tensor, sources: list[tf.Tensor], gradient: tf.Tensor
    ) -> Any:
        weights = [variable.value for variable in self._variables]
        found = tape.gradient(
            output,
            [*weights, *sources],
            output_gradients=tf.cast(gradient, output.dtype),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return found[: len(weights)], found[len(weights) :]

    def _run(self, inputs: list[tf.Tensor], table: tf.Tensor, touches_edge: bool, as_blocks: bool = False) -> tf.Tensor:
        """Run the segment's operations on a tile; its end is left in blocks if asked for."""
        # Outside of here everything is of the model's own type, gradients too: only products are computed in another.
        inputs = [tf.cast(x, self._precision) for x in inputs]
        values = dict(zip(self._segment.inputs, inputs, strict=True))
        by_y, by_x, tail = self._blocks
        edge = 0
        for name in self._segment.ops:
            op = self._graph.by_name[name]
            cropped, padding = [], []
            for source in op.inputs:
                cropped.append(_crop(values[source], table[edge]) if self._is_cropped(source, op) else values[source])
                padding.append(table[edge, :, 2:] if touches_edge else None)
                edge += 1
            values[name] = self._run_op(op, cropped, padding, tail)
        output = values[self._segment.output]
        if tail and not as_blocks:
            output = ops.depth_to_space(output, by_y, by_x)
        if tail and as_blocks:
            return output
        return _crop(output, table[edge]) if self._is_cropped(self._segment.output, None) else output

    def _is_cropped(self, source: str, reader: Op | None) -> bool:
        """Whether `source` may hold more than `reader` (None: the tile itself) needs.

        A cut that cuts nothing would make the backward pass compute `source` only to learn its size.
        """
        op = self._graph.by_name[source]
        if source in self._blocks[2]:
            return reader is None
        readers = [name for name in self._segment.ops if source in self._graph.by_name[name].inputs]
        is_exact = op.kind not in UPSAMPLING and len(readers) <= 1 and (reader is None or reader.kind != "pad")
        return not is_exact

    def _run_op(
        self, op: Op, inputs: list[tf.Tensor], padding: list[tf.Tensor | None], tail: tuple[str, ...]
    ) -> tf.Tensor:
        layer = self._layers[op.name]
        if op.name not in tail:
            return ops.run(op, layer, inputs, padding)
        if op.kind == "transposed":
            return ops.transposed_blocks(op, layer, inputs[0], padding[0])
        if op.kind == "conv":
            return ops.conv_in_blocks(layer, inputs[0], self._blocks[0] * self._blocks[1])
        return tf.cast(layer(inputs[0]), inputs[0].dtype)

    def _in_blocks(self, labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(y, x) -> (y / block, x / block, pixel of the block); padded with invalid pixels where a block is cut off."""
        by_y, by_x, _ = self._blocks
        height, width = labels.shape
        below, right = -height % by_y, -width % by_x
        if below or right:
            labels = np.pad(labels, ((0, below), (0, right)), constant_values=INVALID)
            height, width = labels.shape
        rows = labels.reshape(height // by_y, by_y, width // by_x, by_x)
        if by_x in _WORDS and labels.flags.c_contiguous:
            # Pixels of a block that lie in one row move as one word.
            words = rows.view(_WORDS[by_x])[..., 0].transpose(0, 2, 1)
            return np.ascontiguousarray(words).view(np.uint8)
        return np.ascontiguousarray(rows.transpose(0, 2, 1, 3)).reshape(height // by_y, width // by_x, by_y * by_x)


_WORDS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def _block_tail(graph: Graph, segment: Segment) -> tuple[int, int, tuple[str, ...]]:
    """Return block height and width, and the operations at the segment's end that are computed block by block.

    These are a transposed convolution and what follows pixel by pixel: brought into the order of the image, its values
    would be moved twice for nothing. (1, 1, ()) where the segment does not end that way. Only where it ends in the
    logits: their tiles are whole blocks, those of a map may begin within one.
    """
    if segment.output != graph.output.name:
        return 1, 1, ()
    tail: list[str] = []
    name = segment.output
    while name in segment.ops:
        op = graph.by_name[name]
        tail.insert(0, name)
        if op.kind == "transposed":
            return op.y.stride, op.x.stride, tuple(tail)
        one_by_one = op.kind == "conv" and (op.y.kernel, op.x.kernel, op.y.stride, op.x.stride) == (1, 1, 1, 1)
        if not (op.elementwise or one_by_one):
            break
        name = op.inputs[0]
    return 1, 1, ()


def _crop(x: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    """Cut the rows and columns that `row`, (axis, 4) of a tile's table, says; no copy where that is all of them."""
    begin = tf.concat([[0], row[:, 0], [0]], axis=0)
    size = tf.concat([[1], row[:, 1], [-1]], axis=0)
    cropped = tf.slice(x, begin, size)
    cropped.set_shape((1, None, None, x.shape[-1]))
    return cropped


def _arrays(gradients: Any) -> tuple[list[Array], list[Array]]:
    weights, inputs = gradients
    return [g.numpy() for g in weights], [g.numpy() for g in inputs]
