"""What command lines share: options, kinds of values, completion, lazily loaded groups."""
