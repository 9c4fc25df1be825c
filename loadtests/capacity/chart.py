"""Bar charts as SVG, without a library."""

import html

COLOURS = {"edge": "#2f6f9f", "gateway": "#e0893b", "store": "#5a9e6f", "fabric": "#8c6bb1", "egress": "#9a9a9a", "published": "#c44e52"}
WIDTH, LEFT, BAR, GAP, TOP = 860, 270, 26, 14, 64


def bars(title, unit, rows, note=""):
    """rows: (label, {part: value}); a part is a segment of its bar. Returns the text of an SVG file."""
    longest = max(sum(parts.values()) for _, parts in rows) or 1
    scale = (WIDTH - LEFT - 110) / longest
    height = TOP + len(rows) * (BAR + GAP) + 52
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           f'<text x="16" y="26" font-size="17" font-weight="bold">{html.escape(title)}</text>',
           f'<text x="16" y="46" fill="#555">{html.escape(unit)}</text>']
    for i, (label, parts) in enumerate(rows):
        y, x = TOP + i * (BAR + GAP), float(LEFT)
        out.append(f'<text x="{LEFT - 10}" y="{y + 18}" text-anchor="end">{html.escape(label)}</text>')
        for part, value in parts.items():
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{value * scale:.1f}" height="{BAR}" fill="{COLOURS[part]}"/>')
            x += value * scale
        out.append(f'<text x="{x + 8:.1f}" y="{y + 18}">{sum(parts.values()):,.0f}</text>')
    out += legend([part for part in COLOURS if any(part in parts for _, parts in rows)], height)
    out.append(f'<text x="16" y="{height - 10}" fill="#555" font-size="11">{html.escape(note)}</text></svg>')
    return "\n".join(out) + "\n"


def legend(parts, height):
    for i, part in enumerate(parts):
        x = 16 + i * 110
        yield f'<rect x="{x}" y="{height - 42}" width="12" height="12" fill="{COLOURS[part]}"/>'
        yield f'<text x="{x + 18}" y="{height - 31}">{part}</text>'
