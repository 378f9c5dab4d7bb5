from noyau.functions import reduce


def row_argmax(x):
    v1 = reduce("argmax", x, -1)
    return v1
