"""Methods from outside of the project: who they are, where they are kept, how they are loaded.

identity     kind, name, version and the digest of the code, which a plan carries and every side compares
registry     the built-in things of a kind by name, and beside them those that were registered
loading      a single file, an installed package, and what a session hands to its workers
digests      of a file, of a package, of what was made in a notebook, and of fedhist itself
"""
