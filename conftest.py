"""Nothing of its own: the plugin comes with the package; this file makes the checkout the root."""
