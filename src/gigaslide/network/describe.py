"""The network of `params.yaml` as a graph, without building it: layer by layer what `unet.build` makes."""

from typing import TYPE_CHECKING

from gigaslide.network.graph import IMAGE, SPARE_THEIR_INPUT, Axis, Graph, Op

if TYPE_CHECKING:
    from gigaslide.config import Network


def describe(network: "Network") -> Graph:
    """Return the graph of `unet.build(network)`; tests keep the two equal."""
    ops = [Op(IMAGE, "image", (), 3)]
    channels = {IMAGE: 3}

    def add(op: Op) -> str:
        ops.append(op)
        channels[op.name] = op.channels
        return op.name

    def conv(source: str, filters: int, kernel: int, stride: int, name: str) -> str:
        axis = Axis(kernel, stride, same=True)
        return add(Op(name, "conv", (source,), filters, axis, axis, name, _weights(kernel, channels[source], filters)))

    def up(source: str, filters: int, name: str) -> str:
        axis = Axis(network.kernel_size, network.stride, same=True)
        weights = _weights(network.kernel_size, channels[source], filters)
        return add(Op(name, "transposed", (source,), filters, axis, axis, name, weights))

    def activation(source: str, name: str) -> str:
        spares_input = network.activation in SPARE_THEIR_INPUT
        op = Op(name, "pointwise", (source,), channels[source], layer=name, elementwise=True, spares_input=spares_input)
        return add(op)

    filters = network.level_filters
    maps, x = [], IMAGE
    for level in range(network.depth):
        x = conv(x, filters[level], network.kernel_size, network.stride, f"down{level + 1}")
        x = activation(x, f"down{level + 1}_activation")
        maps.append(x)
    x = activation(conv(x, filters[-1], network.kernel_size, 1, "core"), "core_activation")
    for level in reversed(range(1, network.depth)):
        x = activation(up(x, filters[level - 1], f"up{level + 1}"), f"up{level + 1}_activation")
        name = f"skip{level}"
        joined = channels[x] + channels[maps[level - 1]]
        x = add(Op(name, "concat", (x, maps[level - 1]), joined, layer=name))
    x = activation(up(x, network.head_filters, "up1"), "up1_activation")
    conv(x, 1, 1, 1, "head")
    return Graph(tuple(ops))


def _weights(kernel: int, inputs: int, outputs: int) -> int:
    return kernel * kernel * inputs * outputs + outputs
