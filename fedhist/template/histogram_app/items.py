"""What is counted: a list that everybody knows beforehand, the same on the server and on every node."""

ITEMS = ["home", "search", "cart", "help"]
