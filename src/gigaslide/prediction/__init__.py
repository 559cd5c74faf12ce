"""From a slide file to a mask: one slide, read and predicted in bounded memory."""
