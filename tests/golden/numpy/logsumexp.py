from noyau.functions import reduce


def logsumexp(x):
    v1 = reduce("logsumexp", x, -1)
    return v1
