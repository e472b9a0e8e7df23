"""Small models that show the trainer at work. ``forward(inputs, targets)`` is the mean loss."""
