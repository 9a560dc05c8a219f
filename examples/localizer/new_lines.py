from faultset.baselines import Ranking, TrainingFreeBaseline, baseline, read_frame


@baseline(
    "new-lines",
    title="New lines",
    task="localization",
    paper="None; an example",
    kind="rule",
    tables=("logs",),
    speed="instant",
    complexity="O(L)",
)
class NewLines(TrainingFreeBaseline):
    """Blame the service with the most log lines of a new kind since the alarm."""

    def localize(self, episode, alarm_ns):
        logs = read_frame(episode, "logs", ("time", "service", "message"))
        kind = logs["message"].str.replace(r"\b[0-9a-f]*\d[0-9a-f]*\b", "#", regex=True)
        known = set(kind[logs["time"] < min(episode.reference[1], alarm_ns)])
        new = logs[(logs["time"] >= alarm_ns) & ~kind.isin(known)]
        return Ranking.of(new.groupby("service", observed=True).size().to_dict(), episode.services)
