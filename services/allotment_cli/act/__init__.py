"""Commands that change Volcano's Jobs and Queues, and list them."""
