#!/usr/bin/env python3
"""alone-*.jsonl -> one table: medians over the rounds, beside what must be reached and what is aimed at."""
import json, statistics as st, sys

rows = [json.loads(line) for line in open(sys.argv[1]) if line.strip()]


def of(mode, name='throughline', **wanted):
    return [r for r in rows if r.get('mode') == mode and r.get('name') == name and all(r.get(k) == v for k, v in wanted.items())]


def med(found, key):
    values = [r[key] for r in found if r.get(key) is not None]
    return st.median(values) if values else float('nan')


def per_round(one, two, key):
    """The median of the ratios of the single rounds."""
    ratios = [a[key] / b[key] for a, b in zip(one, two) if a.get(key) and b.get(key)]
    return st.median(ratios) if ratios else float('nan')


lines = []
for n in (1000, 16000):
    found = of('replay', n=n)
    lines.append((f'replay of {n:,} events of 200 B from memory, events per second of one core',
                  f"{med(found, 'events_per_cpu_s') / 1e6:.2f} M/s", '2 M/s', '4 M/s'))
    lines.append((f'… a return to {n:,} held events, all of it', f"{med(found, 'cpu_us_per_return'):,.0f} µs CPU", '', ''))
start = of('start')
lines.append(('start to first answered request', f"{med(start, 'start_ms'):.1f} ms (least {med(start, 'start_ms_least'):.1f})", '50 ms', '20 ms'))
lines.append(('… CPU until then', f"{med(start, 'start_cpu_ms'):.1f} ms", '', ''))
lines.append(('… memory then', f"{med(start, 'start_rss_mb'):.1f} MB", '', ''))
if of('start', 'nginx'):
    nginx = of('start', 'nginx')
    lines.append(('… nginx beside it', f"{med(nginx, 'start_ms'):.1f} ms, {med(nginx, 'start_cpu_ms'):.1f} ms CPU", '', ''))
size = of('size')[0]
lines.append(('the binary', f"{size['bytes'] / 1e6:.1f} MB ({size['without_debug_bytes'] / 1e6:.1f} without debug information)", '20 MB', '10 MB'))
for mode, key, rate, what in (('json-closed', 'cpu_us_per_req', 'rps', 'call'), ('sse-fire', 'cpu_s_per_1m_events', 'events_per_s', 'event')):
    one, two = of(mode, axis='workers', at=1), of(mode, axis='workers', at=2)
    lines.append((f'CPU per {what}, 1 and 2 workers', f"{med(one, key):.2f} and {med(two, key):.2f} µs", '', ''))
    lines.append((f'… so two full cores carry, against one', f"{2 * per_round(one, two, key):.2f} times", '1.8 times', ''))
    lines.append((f'… seen from outside ({what}s a second, load on the same cores)', f"{per_round(two, one, rate):.2f} times", '', ''))
print('\n| measure | here | must | goal |\n|---|---|---|---|')
for line in lines:
    print('| ' + ' | '.join(line) + ' |')
loads = [r for r in rows if 'foreign_cpu' in r]
print(f"\nOthers took {st.median([r['foreign_cpu'] for r in loads]):.0%} of both cores meanwhile (median).")
for r in rows:
    faults = sum(r.get(k, 0) for k in ('errors', 'bad', 'gaps', 'dups', 'short_streams'))
    if r.get('failed') or faults:
        print(f"- FAULT {r['name']} {r['mode']}: {'no result' if r.get('failed') else faults} {r.get('error_kinds', '')}")
