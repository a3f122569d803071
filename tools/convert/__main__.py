"""tailrace convert: starts the converter of the Python package, with the interpreter that has it."""

import sys

try:
    from tailrace.convert.__main__ import main
except ImportError as error:
    needed = """tailrace: convert is part of the Python package, and {} cannot import it ({}). Install it from a clone,
  {} -m pip install '.[torch,safetensors]'
or set TAILRACE_PYTHON to an interpreter that has it."""
    print(needed.format(sys.executable, error, sys.executable), file=sys.stderr)
    sys.exit(4)
sys.exit(main(sys.argv[1:]))
