"""Train segmentation networks end to end on gigapixel whole-slide images, under a memory budget.

Five functions, each loaded when it is first used: `open_slide`, `load_model`, `predict_mask`, `train` and `plan`.
"""

__version__ = "0.1.0"
__all__ = ["load_model", "open_slide", "plan", "predict_mask", "train"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(__import__("gigaslide.api", fromlist=[name]), name)
    raise AttributeError(f"module 'gigaslide' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
