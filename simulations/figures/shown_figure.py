"""A figure that a notebook shows by itself, whether or not pyplot is loaded."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A matplotlib figure like any other: `savefig`, `axes` and so on work as usual."""

    def _repr_png_(self) -> bytes:
        """How a notebook shows it. Where pyplot's own display is active, that one shows it instead."""
        from fedhist.simulations.figures.painting import save

        file = BytesIO()
        save(self, file, "png")
        return file.getvalue()
