"""Writes the dashboards as the JSON that Grafana provisions: generate.py, or generate.py --check to compare only."""

import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from boards import capacity, edge, fabric, gateway, load_test, region, store, tenant  # noqa: E402

BOARDS = [board.BOARD for board in (region, edge, store, fabric, gateway, tenant, load_test, capacity)]


def main():
    stale = []
    for name, board in BOARDS:
        path = HERE / "json" / f"{name}.json"
        text = JSONEncoder(sort_keys=True, indent=1).encode(board) + "\n"
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.exit(f"not what the code makes: {', '.join(stale)}; run dashboards/grafana/generate.py")


if __name__ == "__main__":
    main()
