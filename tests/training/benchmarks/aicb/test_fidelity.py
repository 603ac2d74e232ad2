"""docs/reference/fidelity.md says what the comparison of dialects and traces says today."""

from tests.workloads.fidelity import PAGE, page, recorded


def test_the_page_is_what_the_comparison_says() -> None:
    assert len(recorded()) == 12
    again = "python -m tests.workloads.fidelity"
    assert PAGE.read_text(encoding="utf-8") == page(), f"docs/reference/fidelity.md is out of date: {again} writes it"
