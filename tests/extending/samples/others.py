"""A population and an engine."""

import fedhist
from tests.support.api import ignore, open_in_process


@fedhist.register(kind="population", name="twins")
def twins(*, users, items, mean=3.0, seed):
    """Users alike."""
    return fedhist.PoissonPopulation(users=users, items=items, mean=mean, seed=seed)


@fedhist.register(kind="engine", name="here")
def here(population, *, seed, observe=ignore, **options):
    return open_in_process(population, seed=seed, observe=observe, **options)
