"""Schedules: functions Kernel -> Kernel that determine how each loop runs, and the strategies composed of them."""
