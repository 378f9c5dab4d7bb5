"""Code generation: kernels as source text, in a folder for each language; printers only print, schedules decide."""
