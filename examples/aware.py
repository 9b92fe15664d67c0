"""Whether a stream goes on after a reconnect. Anything but "resumed" means: read your state again before you go on."""
import re

ID = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{11}\.(?:g|p[a-z][A-Za-z0-9_-]*)\.[A-Za-z0-9_-]{16})\.(0|[1-9][0-9]*)(-[0-9a-z]{1,8}|~)?")
RESUMED = re.compile(r'\s*resumed; epoch="([A-Za-z0-9_-]{11})"; from="([0-9]+)"; replayed=[0-9]+; window=[1-9]')


def classify(asked: str | None, first: str | None, verdict: str | None) -> str:
    """asked: the id presented as Last-Event-ID; first: the first id that came; verdict: Throughline-Continuity."""
    if re.match(r"\s*reset\b", verdict or ""):
        return "re-originated"
    had, came = ID.fullmatch(asked or ""), ID.fullmatch(first or "")
    if not had or not came:
        return "unverifiable"
    if had[1] != came[1]:
        return "re-originated"
    ahead = int(came[2]) - int(had[2])
    if not 0 <= ahead <= (0 if (came[3] or "").startswith("-") else 1):
        return "re-originated"
    said = RESUMED.match(verdict or "")
    return "resumed" if said and said.groups() == (had[1][1:12], had[2]) else "unverifiable"
