"""Schedules: functions Kernel -> Kernel that say how each loop runs, and the strategies that are made of them."""
