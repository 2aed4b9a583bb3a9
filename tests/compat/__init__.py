"""A file of recorded answers of Volcano's, asked of the product's own code: `make compat`."""
