#!/usr/bin/env python3
"""growth-*.jsonl -> a table of medians with the curves' flatness, and the curves as an SVG.

    python3 plot.py RESULTS.jsonl OUT.svg

Flatness is the dearest point of a curve over its cheapest (1.00 = flat); the trend beside it is the last point over the
first, as the median of the ratios of the single rounds, so that what others did on the machine is felt less.
"""
import json, math, statistics as st, sys
from collections import defaultdict
from xml.sax.saxutils import escape

# (axis, mode, key, title, what the x axis counts)
CURVES = [
    ('sessions', 'json-closed', 'cpu_us_per_req', 'CPU per JSON call (µs)', 'idle sessions'),
    ('sessions', 'sse-fire', 'cpu_s_per_1m_events', 'CPU per event of a burst (µs)', 'idle sessions'),
    ('sessions', 'hold', 'cpu_us_per_open', 'CPU per session opened (µs)', 'sessions'),
    ('window', 'sse-fire', 'cpu_s_per_1m_events', 'CPU per event of a burst (µs)', 'events in the window'),
    ('window', 'replay', 'cpu_us_per_replayed', 'CPU per replayed event (µs)', 'events in the window'),
    ('window', 'return', 'cpu_us_per_return', 'CPU per return to the newest event (µs)', 'events in the window'),
]
COLOURS = {'throughline': '#0b6e4f', 'nginx': '#8a8a8a'}
WIDTH, HEIGHT, ACROSS = 380, 230, 2  # of a panel, and panels beside each other
LEFT, RIGHT, TOP, BOTTOM = 52, 28, 34, 44
LEGEND = 30  # above all panels


def read(path):
    """{(axis, mode): {name: {at: [row of round 1, row of round 2, ...]}}}, and what went wrong."""
    curves, faults = defaultdict(lambda: defaultdict(lambda: defaultdict(list))), []
    for row in (json.loads(line) for line in open(path) if line.strip()):
        if row.get('failed'):
            faults.append(f"{row['name']} {row['mode']}: no result")
            continue
        wrong = sum(row.get(k, 0) for k in ('errors', 'bad', 'gaps', 'dups', 'short_streams', 'ended'))
        if row['mode'] == 'hold':
            wrong += row['streams'] - row['open']
        if wrong:
            faults.append(f"{row['name']} {row['mode']} at {row['at']}: {wrong} {row.get('error_kinds', '')}")
        curves[row['axis'], row['mode']][row['name']][row['at']].append(row)
    for name, points in curves['window', 'replay'].items():
        for at, rows in points.items():
            for whole, bare in zip(rows, curves['window', 'return'][name][at]):
                whole['cpu_us_per_replayed'] = (whole['cpu_us_per_return'] - bare['cpu_us_per_return']) / (whole['n'] - 2)
    return curves, faults


def medians(points, key):
    found = {at: [r[key] for r in rows if key in r] for at, rows in sorted(points.items())}
    return {at: st.median(values) for at, values in found.items() if values}


def ratio_by_round(over, under, key):
    ratios = [a[key] / b[key] for a, b in zip(over, under) if key in a and b.get(key)]
    return st.median(ratios) if ratios else float('nan')


def table(axis, mode, key, title, counted, by_name):
    ats = sorted({at for points in by_name.values() for at in points})
    print(f"\n### {title}, by {counted}\n")
    print('| proxy | ' + ' | '.join(f'{at:,}' for at in ats) + ' | flatness | trend |')
    print('|' + '---|' * (len(ats) + 3))
    for name, points in by_name.items():
        values, nginx = medians(points, key), by_name.get('nginx')
        if not values:
            continue
        cells = []
        for at in ats:
            cell = f'{values[at]:.3g}' if at in values else '-'
            if nginx and name != 'nginx' and at in values and nginx.get(at):
                cell += f' ({ratio_by_round(points[at], nginx[at], key):.2f}x)'
            cells.append(cell)
        trend = ratio_by_round(points[max(values)], points[min(values)], key)
        print(f'| {name} | ' + ' | '.join(cells) + f' | {max(values.values()) / min(values.values()):.2f} | {trend:.2f} |')


def ceiling(value):
    """The next round number of 1, 2, 2.5, 4, 5, 8 or 10 times a power of ten."""
    unit = 10 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 2, 2.5, 4, 5, 8, 10, 20) if step * unit >= value)


def colour_of(name):
    return COLOURS.get(name, '#b5651d')


def legend(names):
    out = []
    for i, name in enumerate(names):
        left = LEFT + 120 * i
        out.append(f'<line x1="{left}" x2="{left + 22}" y1="16" y2="16" stroke="{colour_of(name)}" stroke-width="3"/>')
        out.append(f'<text x="{left + 28}" y="20" class="tick">{escape(name)}</text>')
    return out


def panel(left, top, key, title, counted, by_name):
    """One curve for each proxy: x by its logarithm, y from zero, so that flat looks flat."""
    lines = {name: values for name, points in by_name.items() if (values := medians(points, key))}
    ats = sorted({at for values in lines.values() for at in values})
    most = ceiling(1.05 * max(v for values in lines.values() for v in values.values()))
    low, high = math.log(min(ats)), math.log(max(ats))
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    x = lambda at: left + LEFT + (wide * (math.log(at) - low) / (high - low) if high > low else wide / 2)
    y = lambda value: top + TOP + tall * (1 - value / most)
    out = [f'<text x="{left + LEFT}" y="{top + 18}" class="title">{escape(title)}</text>']
    for part in range(5):
        value = most * part / 4
        out.append(f'<line x1="{left + LEFT}" x2="{left + WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" class="grid"/>')
        out.append(f'<text x="{left + LEFT - 6}" y="{y(value) + 4:.1f}" class="tick" text-anchor="end">{value:.3g}</text>')
    for at in ats:
        out.append(f'<text x="{x(at):.1f}" y="{top + HEIGHT - BOTTOM + 16}" class="tick" text-anchor="middle">{at:,}</text>')
    out.append(f'<text x="{left + LEFT + wide / 2:.1f}" y="{top + HEIGHT - BOTTOM + 32}" class="tick" text-anchor="middle">{escape(counted)}</text>')
    for name, values in lines.items():
        colour = colour_of(name)
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="' + ' '.join(f'{x(at):.1f},{y(v):.1f}' for at, v in values.items()) + '"/>')
        out += [f'<circle cx="{x(at):.1f}" cy="{y(v):.1f}" r="3" fill="{colour}"/>' for at, v in values.items()]
    return out


def draw(drawn, path):
    down = -(-len(drawn) // ACROSS)
    size = WIDTH * ACROSS, LEGEND + HEIGHT * down
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" viewBox="0 0 {size[0]} {size[1]}" role="img" aria-label="Cost as sessions and the window grow">',
           '<style>text{font-family:sans-serif;fill:#333}.title{font-size:13px;font-weight:bold}.tick{font-size:11px}.grid{stroke:#ddd}</style>',
           '<rect width="100%" height="100%" fill="#fff"/>']
    out += legend(sorted({name for curve in drawn for name in curve[5]}, reverse=True))
    for i, (_, _, key, title, counted, by_name) in enumerate(drawn):
        out += panel(i % ACROSS * WIDTH, LEGEND + i // ACROSS * HEIGHT, key, title, counted, by_name)
    open(path, 'w').write('\n'.join(out + ['</svg>', '']))


def main():
    curves, faults = read(sys.argv[1])
    drawn = [(*curve, curves[curve[0], curve[1]]) for curve in CURVES if curves.get(curve[:2])]
    drawn = [curve for curve in drawn if any(medians(points, curve[2]) for points in curve[5].values())]
    for curve in drawn:
        table(*curve)
    foreign = [r['foreign_cpu'] for by in curves.values() for points in by.values() for rows in points.values() for r in rows if 'foreign_cpu' in r]
    print(f'\nOthers took {st.median(foreign):.0%} of both cores meanwhile (median).')
    for fault in faults:
        print(f'- FAULT {fault}')
    if len(sys.argv) > 2:
        draw(drawn, sys.argv[2])
        print(f'drawn: {sys.argv[2]}')


main()
