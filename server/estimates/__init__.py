"""What can be said of the counts once the noise is in: estimates and lower limits, from released values alone.

All of it is computed from the noised vector and from the law of its noise, both of which are public. It is a
post-processing: it costs no privacy, and anyone who has the release can compute it again.
"""

from fedhist.server.estimates.empirical_bayes import estimates_and_limits, limits_above_bar
from fedhist.server.estimates.limits import LEVEL
from fedhist.server.estimates.noise_law import NoiseLaw, law_above_bar, law_of_noise, law_of_shares

__all__ = [
    "LEVEL",
    "NoiseLaw",
    "estimates_and_limits",
    "law_above_bar",
    "law_of_noise",
    "law_of_shares",
    "limits_above_bar",
]
