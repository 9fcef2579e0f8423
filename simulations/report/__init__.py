"""A run or a comparison as one HTML page that needs nothing else: `fedhist report`."""
