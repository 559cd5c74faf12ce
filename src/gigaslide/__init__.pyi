from gigaslide.api import load_model as load_model
from gigaslide.api import open_slide as open_slide
from gigaslide.api import plan as plan
from gigaslide.api import predict_mask as predict_mask
from gigaslide.api import train as train

__version__: str
__all__ = ["load_model", "open_slide", "plan", "predict_mask", "train"]
