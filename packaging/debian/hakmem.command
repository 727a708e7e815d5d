#!/usr/bin/python3
"""The command hakmem, whose modules are no other program's."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib/hakmem"))
from hakmem.app import main  # noqa: E402

sys.exit(main())
