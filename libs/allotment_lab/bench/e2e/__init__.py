"""`allot bench e2e`: pods created to pods bound at an API server."""
