"""Where kernels run as citizens: one file a runtime."""
