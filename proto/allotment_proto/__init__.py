"""What Allotment's processes say to each other: events, pipeline messages, subjects, wire formats.

Imports nothing of ours. Everything here only ever grows: a field is added at the end with a
default, a tag never changes its meaning, and every sample under ``samples/`` decodes for ever.
"""
