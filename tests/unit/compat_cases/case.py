"""What a case is made of."""

from typing import Any

Case = tuple[dict[str, Any], dict[str, Any]]
"""What a function is given, and what it answers."""
