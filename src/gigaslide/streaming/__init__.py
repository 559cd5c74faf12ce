"""From an image area and a network to loss, gradient and prediction: the engine behind the training loop."""
