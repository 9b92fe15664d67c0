#!/usr/bin/env python3
"""results.jsonl -> a table a mode: medians over the rounds; in brackets the median of the round-by-round ratios to nginx."""
import json, os, statistics as st, sys
from collections import defaultdict
rows = [json.loads(l) for l in open(sys.argv[1]) if l.strip()]
M = {
 'json-closed': [('rps', 0), ('p50_us', 0), ('p99_us', 0), ('cpu_us_per_req', 2), ('mock_us_per_req', 1), ('loadgen_us_per_req', 1)],
 'json-open': [('rps', 0), ('p50_us', 0), ('p99_us', 0), ('p999_us', 0), ('cpu_us_per_req', 2)],
 'sse-fire': [('events_per_s', 0), ('mb_per_s', 1), ('cpu_s_per_1m_events', 3), ('mock_s_per_1m_events', 3), ('loadgen_s_per_1m_events', 3)],
 'sse-flush': [('events_per_s', 0), ('mb_per_s', 1), ('cpu_s_per_1m_events', 3), ('mock_s_per_1m_events', 3), ('loadgen_s_per_1m_events', 3)],
 'sse-paced': [('events_per_s', 0), ('p50_us', 0), ('p99_us', 0), ('cpu_s_per_1m_events', 3), ('mock_s_per_1m_events', 3), ('loadgen_s_per_1m_events', 3)],
 'replay': [('events_per_s', 0), ('events_per_cpu_s', 0), ('cpu_s_per_1m_events', 3), ('cpu_us_per_return', 1), ('p50_us', 0), ('mock_s_per_1m_events', 3), ('loadgen_s_per_1m_events', 3)],
 'idle': [('open', 0), ('rss_bytes_per_stream', 0), ('pss_bytes_per_stream', 0), ('rss_after_close_mb', 1), ('rss_base_mb', 1), ('open_s', 2), ('open_cpu_us_per_stream', 1), ('idle_cpu_ms_per_s', 2)],
}
STORM = [('recovered', 0), ('exact_next_event', 0), ('all_back_s', 3), ('p50_us', 0), ('p99_us', 0), ('cpu_us_per_reconnect', 1), ('reconnects', 0), ('retries', 0), ('masked_by_proxy', 0), ('told_error', 0), ('told_reset', 0), ('streams_without_ids', 0)]
M['idle-tls'] = M['idle-h2'] = M['idle']
RATIO = {'rps', 'events_per_s', 'cpu_us_per_return', 'cpu_us_per_req', 'cpu_s_per_1m_events', 'rss_bytes_per_stream', 'open_cpu_us_per_stream', 'cpu_us_per_reconnect', 'all_back_s', 'p50_us', 'p99_us'}
MAXF = float(os.environ.get('MAXF', 9))  # drop measurements during which others took more than this share of both cores
by = defaultdict(lambda: defaultdict(list)); dropped = defaultdict(int); order = []; modes = []; failed = defaultdict(int)
for r in rows:
    if r.get('failed'):
        failed[r['name'], r['mode']] += 1; continue
    m = r['mode'] + (f" M={r['streams']}" if r['mode'].startswith(('idle', 'storm')) else '') + (f" {r['rate']:.0f}/s" if r['mode'] == 'json-open' else '')
    r['round'] = sum(1 for x in by[m][r['name']]) + dropped[m, r['name']]
    # /proc/stat counts by ticks: a load with a fixed rate can beat with them, so these modes are not judged by it
    if r.get('foreign_cpu', 0) > MAXF and r['mode'] not in ('json-open', 'sse-paced'):
        dropped[m, r['name']] += 1
    else:
        by[m][r['name']].append(r)
    if r['name'] not in order: order.append(r['name'])
    if m not in modes: modes.append(m)
def med(rs, k):
    v = [r[k] for r in rs if r.get(k) is not None]
    return st.median(v) if v else float('nan')
for m in modes:
    base = m.split(' ')[0]; cols = M.get(base, STORM)
    print(f"\n### {m}\n")
    print('| proxy | n | ' + ' | '.join(c for c, _ in cols) + ' | errors/bad | foreign_cpu |')
    print('|' + '---|' * (len(cols) + 4))
    ref = by[m].get('nginx')
    for n in order:
        rs = by[m].get(n)
        if not rs: continue
        cells = []
        for c, d in cols:
            if n == 'direct' and c.startswith(('rss', 'pss')):
                cells.append('-'); continue  # the mocks are warm from earlier modes: no measure of anything
            v = med(rs, c); s = f"{v:,.{d}f}"
            if ref and n != 'nginx' and c in RATIO:
                # round by round, so that a change of the machine's load between rounds falls out
                rb = {b['round']: b for b in ref}
                q = [a[c] / rb[a['round']][c] for a in rs if a.get(c) is not None and rb.get(a['round'], {}).get(c)]
                if q: s += f" ({st.median(q):.2f}x)"
            cells.append(s)
        bad = sum(r.get('errors', 0) + r.get('bad', 0) + r.get('gaps', 0) + r.get('dups', 0) + r.get('lost', 0) + r.get('short_streams', 0) for r in rs)
        print(f"| {n} | {len(rs)} | " + ' | '.join(cells) + f" | {bad} | {med(rs, 'foreign_cpu'):.2f} |")
    kinds = defaultdict(int)
    for n in order:
        for r in by[m].get(n, []):
            for k, c in r.get('error_kinds', {}).items(): kinds[n, k] += c
            for k in ('gaps', 'dups', 'lost', 'short_streams'):
                if r.get(k): kinds[n, k] += r[k]
    for (n, k), c in kinds.items(): print(f"\n- {n}: {c} x {k}")
for (n, m), c in failed.items(): print(f"\n- FAILED {n} {m}: {c}")
