"""Languages: kernels as source text. One file a language; printers only spell."""
