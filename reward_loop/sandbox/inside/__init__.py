"""What runs on the other side of the sandbox's wall: the nursery, the programs that it starts, and the judge of their results.

Invariant: these modules import the standard library and each other only, and run on Python 3.9: the interpreter of the programs
need not be ours, and their text reaches it through a descriptor.
"""
