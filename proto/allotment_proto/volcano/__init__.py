"""The wire contract with Volcano's device plugins and users: annotations, resources, encodings.

One module per device family, plus `selection` for the annotations with which pods choose cards.
Volcano's words stop here: the rest of the code speaks the glossary's.
"""
