"""A pair of small LLaMA files with random weights, one from each exporter of PyTorch, for `noyau demo` and the tests.

They are made by `examples/export_llama.py --size tiny`."""
