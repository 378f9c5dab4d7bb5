"""`noyau.optimize`: fuse, certify, time, keep the winners, put them back."""
