"""What the tests trust instead of our own output: DataHub's packaged model, and a server that
enforces it.
"""
