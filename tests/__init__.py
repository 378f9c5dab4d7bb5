"""The tests: they mirror the package, file for file; a file without `test_` is shared by several."""
