"""NumPy functions into graphs: they are called once, on arrays that note what is asked of them."""
