"""What a pixel is: the values of every mask in the project, uint8."""

GLASS = 0
TISSUE = 1
INVALID = 255  # never scanned, or set aside by the annotation: in no loss and no metric
