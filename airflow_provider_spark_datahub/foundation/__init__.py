"""Foundation of all layers: keys of attempts, files that survive a crash, text that is safe to
print.

It knows no layer, and no library but msgspec. Other folders import its modules directly.
"""
