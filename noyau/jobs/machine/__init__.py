"""`noyau machine`: the measured rates of this machine."""
