"""`python -m foveate` is `foveate`."""

from foveate.cli import main

main()
