"""`python -m graphstrap`."""

from __future__ import annotations

import sys

from graphstrap.cli import main

sys.exit(main())
