"""A Flower app that releases a private histogram: `fedhist new NAME` copies what lies beside this file."""
