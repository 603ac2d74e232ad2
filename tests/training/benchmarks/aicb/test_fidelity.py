"""docs/data/fidelity.json says what the comparison of dialects and traces says today."""

from tests.workloads.fidelity import FILE, recorded, text


def test_the_file_is_what_the_comparison_says() -> None:
    assert len(recorded()) == 12
    again = "python -m tests.workloads.fidelity"
    assert FILE.read_text(encoding="utf-8") == text(), f"docs/data/fidelity.json is out of date: {again} writes it"
