"""The ServerApp of `flwr run`: it runs the plan in the run-config.

Flower may import this while another thread is still importing the package, and Python then looks for sub-packages where
the package says so far. `import fedhist` waits until it has said where those of a bundle lie.
"""

import fedhist  # noqa: F401 - waits, see above
from fedhist.server.flower import app

__all__ = ["app"]
