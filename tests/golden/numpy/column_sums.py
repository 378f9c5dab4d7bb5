def column_sums(x):
    v1 = x.sum(0)
    return v1
