"""What is measured of a run, and what it means."""
