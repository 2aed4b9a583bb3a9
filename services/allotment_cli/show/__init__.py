"""What commands print: lines, tables, documents, errors, progress, and the exit code."""
