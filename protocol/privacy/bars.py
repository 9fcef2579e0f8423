"""Noise and bar of an open-domain release: which keys nobody listed may be shown, and at what delta.

Every user's histogram was random-clipped to `threshold` = C items, so it is a vector of whole, non-negative counts
whose sum is at most C. The server adds up the clipped histograms, noises the keys whose *clipped* sum is positive
and releases those whose noisy count exceeds the bar. Noise of scale b hides epsilon = Delta/b, where the l1
sensitivity Delta is C (add-remove) or 2C (replace); the bar hides that a key is there at all, up to delta.

Deviation: the paper's Algorithm 3 noises every key of positive *unclipped* total. That is not private: a user
with m keys of their own gets m chances to pass the bar, where delta was computed for C.

Write f(x) for what is shown of a key whose clipped sum is x: the noisy count, or nothing, written ⊥. Keys are
noised independently, so a release is a product over keys, ⊥ for all keys but finitely many. For two
distributions, H_a(P|Q) = sum of max(P(y) - a Q(y), 0), and (epsilon, delta)-private means H <= delta at
a = e^epsilon, for both orders of both neighbours. Two facts are used:

- **Products.** min(P, aQ) has mass 1 - H_a(P|Q). The product over keys of these measures is below the product of
  the P_j and below (product of a_j) times the product of the Q_j. So at a = product of a_j, over all keys
  1 - H <= product of (1 - H_j) can't fail: H <= 1 - product of (1 - H_j).
- **Mixtures.** H is jointly convex, so what holds for every outcome of the users' random clips holds on average.

How each kind of noise uses them stands at `truncated_laplace` and `laplace_threshold`. In both, delta is *exact*:
it holds for all neighbours, and some pair of neighbours reaches it.
"""
