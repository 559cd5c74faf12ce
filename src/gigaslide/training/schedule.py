"""The learning rate of every step: a linear warm-up, then half a cosine down to a floor.

Cosine decay: Loshchilov and Hutter 2017, arXiv 1608.03983, without restarts.
"""

import math

# The last steps still move: a rate of 0 would only waste them.
_FLOOR = 0.01


def learning_rate(step: int, steps: int, peak: float, warmup_steps: int) -> float:
    """Return the learning rate of step `step` (0-based) out of `steps`; the highest one is `peak`."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, steps - warmup_steps)
    return peak * (_FLOOR + (1 - _FLOOR) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
