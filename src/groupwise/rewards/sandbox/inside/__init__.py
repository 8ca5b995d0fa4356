"""What runs within the isolation, with the standard library alone and without the rest of the package.

These files are bound into the sandbox and started there, so they import each other only, and as little of the standard
library as they can: a program is graded in a process of its own, and every import is paid once per program.
"""
