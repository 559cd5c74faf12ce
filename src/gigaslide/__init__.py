"""Train segmentation networks end to end on gigapixel whole-slide images, under a memory budget."""

__version__ = "0.1.0"
