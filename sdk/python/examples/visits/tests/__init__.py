"""Plain native tests: no WebAssembly and no runtime, but a host that keeps the contract. `python3 -m unittest` runs them."""

import sys
from pathlib import Path

project = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(project), str(project / "vendor")]
