"""One dashboard a module: `BOARD` is its file name and its panels. ../generate.py writes them as JSON."""
