"""Many host names in a few characters."""

from __future__ import annotations

import pytest

from clusterkit.report.folding import fold


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["gpu01", "gpu02", "gpu03", "gpu05"], "gpu[01-03,05]"),
        (["gpu01"], "gpu01"),
        (["gpu9", "gpu10", "gpu11"], "gpu[9-11]"),
        (["gpu08", "gpu09", "gpu10"], "gpu[08-10]"),
        (["a", "b"], "a,b"),
        (["n1.example", "n2.example", "m1.example"], "n[1-2].example,m1.example"),
        (["gpu3", "gpu1", "gpu2"], "gpu[1-3]"),
        (["gpu1", "gpu1"], "gpu1"),
        ([], ""),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
        (["gpu1", "gpu01"], "gpu1,gpu01"),
    ],
)
def test_names_fold(names: list[str], folded: str) -> None:
    assert fold(names) == folded
