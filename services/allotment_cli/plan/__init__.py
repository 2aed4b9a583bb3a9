"""Commands that try manifests or a configuration before they are applied."""
