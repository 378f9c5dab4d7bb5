"""`noyau extract`: the path between some values of a model as an op, to replace it by a user kernel."""
