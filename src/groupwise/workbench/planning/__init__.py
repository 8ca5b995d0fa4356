"""What a configuration takes: memory on a device, seconds of a step, before anything is loaded."""
