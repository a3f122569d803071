"""`python -m tailrace` is the command `tailrace`, as `python -m tailrace_command` is. This one needs NumPy."""

from tailrace_command import main

main()
