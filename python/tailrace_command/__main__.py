"""`python -m tailrace_command` is the command `tailrace`."""

from tailrace_command import main

main()
