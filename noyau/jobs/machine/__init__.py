"""`noyau machine`: what this machine can do, measured."""
