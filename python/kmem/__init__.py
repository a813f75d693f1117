"""The kmem command."""
