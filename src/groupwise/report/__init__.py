"""A run as one HTML file. Reads run folders and imports only the records; nothing else depends on it."""
