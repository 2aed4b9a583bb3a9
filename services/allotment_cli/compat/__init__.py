"""`allot compat`: a file of recorded answers of Volcano's, asked of the product's own code."""
