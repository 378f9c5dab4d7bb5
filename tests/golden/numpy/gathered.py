def gathered(table, ids):
    v2 = table[ids]
    v3 = v2 * v2
    v4 = v3.sum(-1, keepdims=True)
    return v2, v4
