"""What a pixel is: the values of every mask in the project, uint8, and how the names of classes are compared."""

GLASS = 0
TISSUE = 1
INVALID = 255  # never scanned, or set aside by the annotation: in no loss and no metric


def class_key(name: str | int) -> str:
    """Return what spellings of a class share: any case, with or without QuPath's "*" (classes it does not measure)."""
    return str(name).strip().removesuffix("*").casefold()
