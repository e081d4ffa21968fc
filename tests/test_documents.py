"""The pages point at pages that exist, and the two READMEs do not drift apart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    missing = [target for target in LINK.findall(text) if not (page.parent / target).exists()]
    assert not missing


def codes(page: str) -> list[str]:
    """The first column of the exit-code table, digits only; the last row has words there."""
    return re.findall(r"^\| ([0-9][0-9, 、]*) \|", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)


def test_both_readmes_show_the_same_examples_and_exit_codes() -> None:
    english, chinese = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md")
    )
    examples = [
        # Only comments are translated.
        [re.sub(r"#.*", "#", block) for block in FENCED.findall(text)]
        for text in (english, chinese)
    ]
    assert examples[0] == examples[1]
    assert [re.findall(r"\d+", code) for code in codes("README.md")] == [
        re.findall(r"\d+", code) for code in codes("README.zh-CN.md")
    ]
