// Whether a stream goes on after a reconnect. asked: the id presented as Last-Event-ID; first: the first id that came;
// verdict: the answer's Throughline-Continuity. Anything but "resumed" means: read your state again before you go on.
const ID = /^([A-Za-z0-9][A-Za-z0-9_-]{11}\.(?:g|p[a-z][A-Za-z0-9_-]*)\.[A-Za-z0-9_-]{16})\.(0|[1-9]\d*)(-[0-9a-z]{1,8}|~)?$/;

/** @type {(asked?: string, first?: string, verdict?: string) => 'resumed' | 're-originated' | 'unverifiable'} */
export function classify(asked, first, verdict = '') {
  if (/^\s*reset\b/.test(verdict)) return 're-originated';
  const [had, came] = [ID.exec(asked ?? ''), ID.exec(first ?? '')];
  if (!had || !came) return 'unverifiable';
  if (had[1] !== came[1]) return 're-originated';
  const ahead = BigInt(came[2]) - BigInt(had[2]);
  const primed = came[3]?.startsWith('-') ?? false;
  if (ahead < 0n || ahead > (primed ? 0n : 1n)) return 're-originated';
  const [, epoch, from] = /^\s*resumed; epoch="([\w-]{11})"; from="(\d+)"; replayed=\d+; window=[1-9]/.exec(verdict) ?? [];
  return epoch === had[1].slice(1, 12) && from === had[2] ? 'resumed' : 'unverifiable';
}
