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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_module_that_is_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    # The example of docs/steps.md is written by whoever reads it.
    named = set(re.findall(r"\bclusterkit/[\w/]+\.py\b", text)) - {"clusterkit/steps/cores.py"}
    assert not [module for module in named if not (ROOT / module).is_file()]


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
