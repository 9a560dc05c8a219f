"""A folder that `datasets.load_dataset` of Hugging Face reads, and that may be uploaded to its hub as it is."""

from __future__ import annotations

import json

from faultset.datasets.exports.tables_by_split import TablesBySplit
from faultset.datasets.format.cards import KEEP_MARK, card_text


class HuggingFaceExport(TablesBySplit):
    """One configuration for each table, with the sides of the split `by-episode`, and the dataset's card."""

    def finish(self) -> None:
        """Write the card, whose front matter names configurations and files."""
        episodes = self.dataset.episodes
        text = card_text(
            self.dataset.root.resolve().name,
            self.dataset.manifest,
            {episode: self.dataset.label(episode) for episode in episodes},
            {episode: self.dataset.view(episode).context.app for episode in episodes},
            added_tables=list(self.added.values()),
        )
        body = text.split("\n---\n", 1)[1].replace(KEEP_MARK, "").replace("episodes/<id>/", "<side>/<id>/").rstrip()
        lists = f"The lists are in `versions/{self.dataset.version}.json`, together with the SHA-256 of every file."
        body = body.replace(lists, "The folders `train` and `test` are the sides of `by-episode`.")
        (self.folder / "README.md").write_text(f"{self._front_matter()}{body}\n", encoding="utf-8")

    def _front_matter(self) -> str:
        configs = []
        for table, sides in self.tables().items():
            files = "".join(f"  - split: {side}\n    path: {self.glob(table, side)}\n" for side in sides)
            configs.append(f"- config_name: {table}\n  data_files:\n{files}")
        name = json.dumps(self.dataset.root.resolve().name)
        tags = "- time-series\n- microservices\n- anomaly-detection\n- root-cause-analysis\n"
        return f"---\npretty_name: {name}\ntags:\n{tags}configs:\n{''.join(configs)}---\n"
