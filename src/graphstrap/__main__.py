"""`python -m graphstrap`."""

from graphstrap.cli import main

main()
