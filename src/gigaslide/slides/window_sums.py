"""What is counted while a slide is copied into its store: the sums of windows are those of the area."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gigaslide.classes import GLASS, INVALID, TISSUE
from gigaslide.slides.arrays import Bytes, Flags
from gigaslide.slides.damage import Damage
from gigaslide.slides.glass import GlassMeter

_LABELS = (GLASS, TISSUE, INVALID)


@dataclass
class WindowSums:
    """Pixels by label, what tells the glass colour, and what was lost."""

    labels: Counter[int] = field(default_factory=Counter)
    glass: GlassMeter = field(default_factory=GlassMeter)
    damage: Damage = field(default_factory=Damage)

    @classmethod
    def of(cls, rgb: Bytes, valid: Flags, mask: Bytes, damage: Damage) -> "WindowSums":
        """Count one window: rgb uint8 (y, x, 3), valid bool (y, x), mask uint8 (y, x) of labels."""
        sums = cls(damage=damage)
        sums.glass.add(rgb, valid)
        # Most windows have no invalid pixel; to see that makes no array of their size.
        drawn = int(np.count_nonzero(mask))
        invalid = int(np.count_nonzero(mask == INVALID)) if mask.max(initial=0) == INVALID else 0
        sums.labels.update({GLASS: mask.size - drawn, TISSUE: drawn - invalid, INVALID: invalid})
        return sums

    def add(self, other: "WindowSums") -> None:
        """Add another window's; `damage.first` is that of the first window added that has one."""
        self.labels.update(other.labels)
        self.glass.merge(other.glass)
        self.damage.merge(other.damage)

    def as_json(self) -> dict[str, Any]:
        """Return the sums as plain values."""
        damage = {"tiles": sorted(self.damage.tiles), "lost_px": self.damage.lost_px, "first": self.damage.first}
        labels = [self.labels[label] for label in _LABELS]
        return {"labels": labels, "glass": self.glass.as_json(), "damage": damage}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "WindowSums":
        """Return what `as_json` was made of."""
        damage = values["damage"]
        return cls(
            Counter(dict(zip(_LABELS, values["labels"], strict=True))),
            GlassMeter.from_json(values["glass"]),
            Damage(
                {(level, row, column) for level, row, column in damage["tiles"]}, damage["lost_px"], damage["first"]
            ),
        )
