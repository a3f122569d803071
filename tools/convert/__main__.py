"""tailrace convert: starts the converter of the Python package, with the interpreter that has it."""

import sys

NO_PACKAGE = """tailrace: convert is part of the Python package, and {} cannot import it ({}). Install it from a clone,
  {} -m pip install '.[torch,safetensors]'
or from a wheel, or set TAILRACE_PYTHON to an interpreter that has it."""
NO_TORCH = """tailrace: convert needs PyTorch, and {} cannot import it ({}). Either
  {} -m pip install torch safetensors
or set TAILRACE_PYTHON to an interpreter that has it."""

try:
    from tailrace.convert.__main__ import main
except ImportError as error:
    needed = NO_TORCH if error.name == "torch" else NO_PACKAGE
    print(needed.format(sys.executable, error, sys.executable), file=sys.stderr)
    sys.exit(4)
sys.exit(main(sys.argv[1:]))
